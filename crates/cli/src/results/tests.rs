//! Invariants of written results.

use super::*;
use onceflow_exec::value::{DirectoryValue, FileValue};
use serde_json::Value as Json;
use std::os::unix::fs::MetadataExt;

struct Bed {
    root: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("store")).unwrap();
        Bed { root }
    }

    fn out(&self) -> PathBuf {
        self.root.path().join("results")
    }

    /// Makes an output file whose content is in the store and has not been fetched.
    fn file(&self, name: &str, content: &str) -> FileValue {
        let promise = promise(Digest::of(content.as_bytes()), content.len() as u64);
        fs::write(self.root.path().join("store").join(&promise), content).unwrap();
        FileValue { name: name.into(), path: promise }
    }

    fn write(&self, outputs: &[(&str, PortValue)]) -> Result<WrittenResults, Fault> {
        let outputs: Vec<_> = outputs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let shelf = Shelf { store: self.root.path().join("store"), outputs };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(write(&self.out(), &shelf, &mut Digests::open(self.root.path(), false)))
    }

    /// Returns every path below the results, with its content.
    fn tree(&self) -> String {
        let (mut found, mut look) = (Vec::new(), vec![self.out()]);
        while let Some(directory) = look.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    look.push(entry.path());
                } else if entry.file_name() != OURS {
                    let name = entry.path().strip_prefix(self.out()).unwrap().display().to_string();
                    found.push(format!("{name}={}", fs::read_to_string(entry.path()).unwrap()));
                }
            }
        }
        found.sort();
        found.join(" ")
    }
}

struct Shelf {
    store: PathBuf,
    outputs: Vec<(String, PortValue)>,
}

impl ResultSource for Shelf {
    fn outputs(&self) -> &[(String, PortValue)] {
        &self.outputs
    }

    async fn placed(&self, _: Vec<(Digest, PathBuf)>) -> Result<Vec<PathBuf>, Fault> {
        Ok(vec![])
    }

    async fn fetch(&self, output: &str, into: &Path) -> Result<PortValue, Fault> {
        let value = self.outputs.iter().find(|(name, _)| name == output).unwrap().1.clone();
        fs::create_dir_all(into).unwrap();
        let number = std::cell::Cell::new(0);
        Ok(fetched(value, &|file: FileValue| {
            number.set(number.get() + 1);
            let path = into.join(number.get().to_string());
            fs::copy(self.store.join(&file.path), &path).unwrap();
            let mut permissions = fs::metadata(&path).unwrap().permissions();
            permissions.set_readonly(true);
            fs::set_permissions(&path, permissions).unwrap();
            FileValue { path, ..file }
        }))
    }
}

fn fetched(value: PortValue, file: &impl Fn(FileValue) -> FileValue) -> PortValue {
    match value {
        PortValue::File(at) => PortValue::from(file(*at)),
        PortValue::List(all) => PortValue::List(all.into_iter().map(|value| fetched(value, file)).collect()),
        PortValue::Record(all) => {
            PortValue::Record(all.into_iter().map(|(name, value)| (name, fetched(value, file))).collect())
        }
        PortValue::Directory(all) => {
            let files = all.files.into_iter().map(file).collect();
            PortValue::from(DirectoryValue { files, ..*all })
        }
        plain => plain,
    }
}

#[test]
fn outputs_land_under_the_names_the_flow_gives_them() {
    let bed = Bed::new();
    let list = PortValue::List(vec![PortValue::from(bed.file("a.bam", "A")), PortValue::from(bed.file("b.bam", "B"))]);
    let twice = PortValue::List(vec![PortValue::from(bed.file("a.bam", "A")), PortValue::from(bed.file("a.bam", "B"))]);
    let directory = DirectoryValue { path: PathBuf::new(), files: vec![bed.file("x/y.txt", "Y")] };
    let record = PortValue::Record([(String::from("log"), PortValue::from(bed.file("l", "L")))].into());
    let outputs = [
        ("vcf", PortValue::from(bed.file("calls.vcf", "V"))),
        ("count", PortValue::Int(3)),
        ("bams", list),
        ("twice", twice),
        ("site", PortValue::from(directory)),
        ("both", record),
    ];
    let done = bed.write(&outputs).unwrap();
    assert_eq!(
        bed.tree(),
        "bams/a.bam=A bams/b.bam=B both/log/l=L calls.vcf=V site/x/y.txt=Y twice/0/a.bam=A twice/1/a.bam=B"
    );
    assert_eq!(done.shown[1], None, "a value without files is not copied");
    let shown = outputs.into_iter().zip(done.shown);
    let shown = shown.map(|((name, value), shown)| (name.to_owned(), shown.unwrap_or(value).to_json()));
    let shown = Json::Object(shown.collect()).to_string().replace(&bed.out().display().to_string(), "results");
    expect_test::expect![[r#"{"vcf":"results/calls.vcf","count":3,"bams":["results/bams/a.bam","results/bams/b.bam"],"twice":["results/twice/0/a.bam","results/twice/1/a.bam"],"site":"results/site","both":{"log":"results/both/log/l"}}"#]].assert_eq(&shown);
}

#[test]
fn outputs_that_are_in_each_others_way_go_apart() {
    let bed = Bed::new();
    let (a, b) = (PortValue::from(bed.file("same", "A")), PortValue::from(bed.file("same", "B")));
    bed.write(&[
        ("one", a),
        ("two", b),
        ("three", PortValue::from(bed.file("four", "C"))),
        ("four", PortValue::List(vec![])),
    ])
    .unwrap();
    assert_eq!(bed.tree(), "one/same=A three/four=C two/same=B");
}

#[test]
fn equal_results_are_left_alone_and_others_replaced() {
    let bed = Bed::new();
    let file = |content: &str| PortValue::from(bed.file("f", content));
    let list = |second: &str| {
        PortValue::List(vec![PortValue::from(bed.file("a", "A")), PortValue::from(bed.file("b", second))])
    };
    let inode = |name: &str| fs::metadata(bed.out().join(name)).unwrap().ino();
    bed.write(&[("f", file("one")), ("l", list("B"))]).unwrap();
    let (f, a, b, l) = (inode("f"), inode("l/a"), inode("l/b"), inode("l"));
    let done = bed.write(&[("f", file("one")), ("l", list("B"))]).unwrap();
    assert_eq!((done.written, done.unchanged), (0, 3));
    assert_eq!((f, a, b, l), (inode("f"), inode("l/a"), inode("l/b"), inode("l")));
    fs::write(bed.out().join("l/stray"), "").unwrap();
    let done = bed.write(&[("f", file("two")), ("l", list("C"))]).unwrap();
    assert_eq!((done.written, done.unchanged), (2, 1));
    assert_eq!(bed.tree(), "f=two l/a=A l/b=C l/stray=", "a stray file stays");
    assert_eq!(a, inode("l/a"), "what stays the same stays the same file");
    fs::write(bed.out().join("f"), "mine").unwrap();
    bed.write(&[("f", file("two"))]).unwrap();
    assert_eq!(fs::read_to_string(bed.out().join("f")).unwrap(), "two");
    assert!(!fs::metadata(bed.out().join("f")).unwrap().permissions().readonly());
}

#[test]
fn a_file_does_not_take_the_place_of_a_directory_nor_the_other_way_round() {
    let bed = Bed::new();
    let list = || PortValue::List(vec![PortValue::from(bed.file("a", "A"))]);
    bed.write(&[("x", list())]).unwrap();
    assert!(bed.write(&[("y", PortValue::from(bed.file("x", "X")))]).is_err());
    assert_eq!(bed.tree(), "x/a=A");
    bed.write(&[("y", PortValue::from(bed.file("z", "Z")))]).unwrap();
    assert!(bed.write(&[("z", list())]).is_err());
    assert_eq!(bed.tree(), "x/a=A z=Z");
}

#[test]
fn names_that_lead_elsewhere_are_refused_before_anything_is_written() {
    let bed = Bed::new();
    for name in ["../x", "/absent/x", "a/../../x"] {
        let mut file = bed.file("x", "X");
        file.name = name.into();
        let value = PortValue::from(DirectoryValue { path: PathBuf::new(), files: vec![file] });
        let fault = bed.write(&[("good", PortValue::from(bed.file("g", "G"))), ("bad", value)]).unwrap_err();
        assert_eq!(fault.code, Some(codes::RESULTS));
        assert_eq!(bed.tree(), "", "{name}");
    }
}

#[test]
fn half_written_results_of_a_killed_process_go_and_those_of_a_living_one_stay() {
    let bed = Bed::new();
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    // Process 1 is always alive.
    let (left, alive) = (bed.out().join(format!("{FETCHED}{}", gone.id())), bed.out().join(format!("{FETCHED}1")));
    for directory in [&left, &alive] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("half"), "").unwrap();
    }
    bed.write(&[("f", PortValue::from(bed.file("f", "F")))]).unwrap();
    assert_eq!((left.exists(), alive.exists()), (false, true));
}

#[test]
fn the_directory_of_results_may_be_a_link_and_nothing_in_it_is_followed() {
    let bed = Bed::new();
    let (canary, elsewhere) = (bed.root.path().join("canary"), bed.root.path().join("elsewhere"));
    for directory in [&canary, &elsewhere] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(canary.join("bird"), "sings").unwrap();
    std::os::unix::fs::symlink(&elsewhere, bed.out()).unwrap();
    let outputs = || [("a", PortValue::from(bed.file("x", "1"))), ("b", PortValue::from(bed.file("x", "2")))];
    bed.write(&outputs()).unwrap();
    assert_eq!(bed.tree(), "a/x=1 b/x=2");
    fs::remove_dir_all(elsewhere.join("a")).unwrap();
    std::os::unix::fs::symlink(&canary, elsewhere.join("a")).unwrap();
    let refused = bed.write(&outputs()).unwrap_err().to_string();
    assert!(refused.contains("is a link"), "{refused}");
    let directory = DirectoryValue { path: PathBuf::new(), files: vec![bed.file("bird", "new")] };
    bed.write(&[("a", PortValue::from(directory))]).unwrap_err();
    assert_eq!(fs::read_to_string(canary.join("bird")).unwrap(), "sings");
    assert_eq!(fs::read_dir(&canary).unwrap().count(), 1);
}
