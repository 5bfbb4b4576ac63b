//! Objects that are changed or lost below `blobs/`: no step gets wrong bytes, `explain` names the damage, and the next
//! run computes the values again. All of it in stores that the test made.

use crate::support::{Bed, copy_flow};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// A flow that makes a large file from a large input, and another from that; every step logs that it ran.
const FLOW: &str = "
flow: two
inputs: { text: file }
steps:
  a:
    run: echo a >> LOG; sort -n ${{ inputs.text }} > a.txt
    out: { t: { file: a.txt } }
  b:
    run: echo b >> LOG; sed 's/$/ b/' ${{ a.t }} > b.txt
    out: { t: { file: b.txt } }
outputs: { a: a.t, b: b.t }
";

const RUN: [&str; 4] = ["run", "two.yaml", "-i", "text=in.txt"];

struct Done {
    bed: Bed,
    a: String,
    b: String,
}

impl Done {
    fn new() -> Self {
        let bed = Bed::new();
        bed.write("canary", "untouched");
        bed.write("in.txt", &(0..3_000).rev().map(|n| format!("{n}\n")).collect::<String>());
        bed.write("two.yaml", &FLOW.replace("LOG", &format!("'{}'", bed.path("log").display())));
        bed.run(&RUN).ends(0);
        let (a, b) = (bed.read("results/a.txt"), bed.read("results/b.txt"));
        assert_eq!(bed.read("log"), "a\nb\n");
        Done { bed, a, b }
    }

    /// Returns the objects of the store.
    fn objects(&self) -> Vec<PathBuf> {
        let files = self.bed.store().into_iter().map(|(path, ..)| path);
        files.filter(|path| path.parent().is_some_and(|parent| parent.ends_with("objects"))).collect()
    }

    fn object_of(&self, content: &str) -> PathBuf {
        let is_it = |path: &PathBuf| fs::read(path).is_ok_and(|found| found == content.as_bytes());
        self.objects().into_iter().find(is_it).expect("an object of this content")
    }

    /// Returns the objects of both steps' outputs, made writable.
    fn made_writable(&self) -> (PathBuf, PathBuf) {
        let (a, b) = (self.object_of(&self.a), self.object_of(&self.b));
        writable(&a);
        writable(&b);
        (a, b)
    }

    fn forget_results(&self) {
        fs::remove_dir_all(self.bed.path("results")).expect("results");
        fs::write(self.bed.path("log"), "").expect("a log");
    }

    #[track_caller]
    fn is_right(&self) {
        assert_eq!((self.bed.read("results/a.txt"), self.bed.read("results/b.txt")), (self.a.clone(), self.b.clone()));
        assert_eq!(self.bed.read("canary"), "untouched");
    }

    #[track_caller]
    fn is_whole(&self) {
        let said = self.bed.run(&["fsck", "--deep", "--json"]).ends(0).json();
        assert_eq!(
            (&said["clean"], &said["deep"], &said["lost"]),
            (&true.into(), &true.into(), &serde_json::json!([]))
        );
    }
}

fn writable(path: &PathBuf) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("our own file");
}

/// Every way to damage a file. The first argument is the file to damage; the second is another object.
type Harm = (&'static str, fn(&PathBuf, &PathBuf));

const HARMS: [Harm; 7] = [
    ("flipped", |path, _| {
        let mut bytes = fs::read(path).unwrap();
        bytes[1_000] ^= 1;
        fs::write(path, bytes).unwrap();
    }),
    ("flipped with its time kept", |path, _| {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        let mut bytes = fs::read(path).unwrap();
        bytes[1_000] ^= 1;
        fs::write(path, bytes).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    }),
    ("truncated", |path, _| fs::File::options().write(true).open(path).unwrap().set_len(5_000).unwrap()),
    ("emptied", |path, _| fs::write(path, "").unwrap()),
    ("swapped", |path, other| {
        let aside = path.with_extension("aside");
        fs::rename(path, &aside)
            .and_then(|()| fs::rename(other, path))
            .and_then(|()| fs::rename(aside, other))
            .unwrap();
    }),
    ("extended", |path, _| fs::write(path, [fs::read(path).unwrap(), b"more".to_vec()].concat()).unwrap()),
    ("deleted", |path, _| fs::remove_file(path).unwrap()),
];

#[test]
fn wrong_bytes_are_never_given_out_and_the_next_run_heals_the_store() {
    for (harm, how) in HARMS {
        for harmed in ["a", "b"] {
            let done = Done::new();
            let (a, b) = done.made_writable();
            if harmed == "a" {
                how(&a, &b);
            } else {
                how(&b, &a);
            }
            done.forget_results();
            let explained = done.bed.run(&["explain", "two.yaml", "-i", "text=in.txt"]).ends(0);
            let line = format!("run    {harmed}  (its stored output is damaged)");
            assert!(explained.stdout.contains(&line), "{harm}: {}", explained.all());
            let said = done.bed.run(&RUN).ends(0);
            done.is_right();
            // A step that reads from one that runs again runs again, too.
            let expected = if harmed == "a" || harm == "swapped" { "a\nb\n" } else { "b\n" };
            assert_eq!(done.bed.read("log"), expected, "{harm}: {}", said.all());
            done.bed.run(&["reclaim"]).ends(0);
            done.is_whole();
            // The store is as before the damage.
            done.forget_results();
            assert!(done.bed.run(&RUN).ends(0).stderr.contains("nothing has changed"));
            done.is_right();
            assert_eq!(done.bed.read("log"), "");
        }
    }
}

#[test]
fn a_step_that_reads_from_a_damaged_object_is_given_the_right_bytes() {
    for (harm, how) in HARMS {
        let bed = Bed::new();
        let make = "seq 1 3000 > a.txt";
        bed.write("kept.yaml", &KEPT.replace("MAKE", make).replace("EDIT", "s/$/ b/"));
        bed.run(&["run", "kept.yaml", "--keep", "1d"]).ends(0);
        let right = bed.read("results/b.txt");
        let done = Done { a: right.replace(" b\n", "\n"), b: right, bed };
        let (a, b) = done.made_writable();
        how(&a, &b);
        done.bed.write("kept.yaml", &KEPT.replace("MAKE", make).replace("EDIT", "s/$/ c/"));
        let explained = done.bed.run(&["explain", "kept.yaml", "--keep", "1d"]).ends(0);
        assert!(explained.stdout.contains("run    a  (its stored output is damaged)"), "{harm}: {}", explained.all());
        done.bed.run(&["run", "kept.yaml", "--keep", "1d"]).ends(0);
        assert_eq!(done.bed.read("results/b.txt"), done.b.replace(" b\n", " c\n"), "{harm}");
    }
}

/// A flow of two steps, the second of which is changed.
const KEPT: &str = "
flow: kept
steps:
  a: { run: MAKE, out: { t: { file: a.txt } } }
  b: { run: \"sed 'EDIT' ${{ a.t }} > b.txt\", out: { t: { file: b.txt } } }
outputs: { b: b.t }
";

#[test]
fn elements_of_a_list_whose_results_are_damaged_run_again_and_no_others() {
    let bed = Bed::new();
    let log = bed.path("log");
    let flow = "
flow: many
inputs: { n: list<int> }
steps:
  make:
    each: i in inputs.n
    run: echo ${{ i }} >> LOG; seq 1 ${{ i }} > a.txt
    out: { t: { file: a.txt } }
  sum: { run: \"cat ${{ make.t }} | wc -l\", out: { t: text } }
outputs: { t: sum.t }
";
    bed.write("many.yaml", &flow.replace("LOG", &format!("'{}'", log.display())));
    let run = ["run", "many.yaml", "-i", "n=[1000,2000,3000]", "--keep", "1d"];
    bed.run(&run).ends(0);
    let done = Done { bed, a: (1..=2_000).map(|n| format!("{n}\n")).collect(), b: String::new() };
    let two = done.object_of(&done.a);
    writable(&two);
    fs::write(&two, "harm").expect("our own file");
    fs::write(&log, "").expect("a log");
    let changed = done.bed.read("many.yaml").replace("| wc -l", "| wc -c");
    done.bed.write("many.yaml", &changed);
    let explained = done.bed.run(&[&["explain", "--all"], &run[1..]].concat()).ends(0);
    assert!(explained.stdout.contains("its stored output is damaged"), "{}", explained.all());
    let said = done.bed.run(&run).ends(0);
    assert_eq!(done.bed.read("log"), "2000\n", "{}", said.all());
    let bytes: usize =
        [1_000, 2_000, 3_000].iter().map(|n| (1..=*n).map(|n: u32| n.to_string().len() + 1).sum::<usize>()).sum();
    assert!(said.stdout.contains(&bytes.to_string()), "{}", said.all());
}

#[test]
fn fsck_compares_lengths_always_and_digests_if_asked_and_says_which() {
    for (harm, how) in HARMS {
        let done = Done::new();
        let (a, b) = done.made_writable();
        how(&a, &b);
        let is_long_as_before = harm.starts_with("flipped");
        let shallow = done.bed.run(&["fsck"]).ends(if is_long_as_before { 0 } else { 7 });
        assert!(shallow.stdout.contains("not their bytes (--deep)"), "{harm}: {}", shallow.all());
        let deep = done.bed.run(&["fsck", "--deep"]).ends(7);
        assert!(deep.stdout.contains("the bytes of"), "{harm}: {}", deep.all());
        let json = done.bed.run(&["fsck", "--deep", "--json"]).ends(7).json();
        assert_eq!((&json["deep"], &json["clean"]), (&true.into(), &false.into()), "{harm}");
        assert!(json["digests"].as_u64() > Some(1), "{json}");
        // Repaired values are computed again; nothing fails for ever.
        done.bed.run(&["fsck", "--deep", "--repair", "--yes"]).ends(0);
        done.forget_results();
        let explained = done.bed.run(&["explain", "two.yaml", "-i", "text=in.txt"]).ends(0);
        assert!(explained.stdout.contains("damaged"), "{harm}: {}", explained.all());
        done.bed.run(&RUN).ends(0);
        done.is_right();
        done.bed.run(&["reclaim"]).ends(0);
        done.is_whole();
    }
}

#[test]
fn damage_that_is_found_while_results_are_fetched_is_damage_and_not_results() {
    let done = Done::new();
    let a = done.object_of(&done.a);
    writable(&a);
    fs::remove_file(&a).expect("our own file");
    let said = done.bed.run(&["export", "two", "two.run"]);
    assert_eq!(said.code, 7, "{}", said.all());
    assert!(said.stderr.contains("OF0406") && !done.bed.path("two.run").exists(), "{}", said.all());
}

#[test]
fn a_damaged_input_is_stored_again_from_its_file() {
    let bed = Bed::new();
    let text: String = (0..3_000).rev().map(|n| format!("{n}\n")).collect();
    bed.write("in.txt", &text);
    let may = format!("test -e '{}'", bed.path("may").display());
    bed.write("copy.yaml", &copy_flow("copy", &may));
    let run = ["run", "copy.yaml", "-i", "text=in.txt", "--store-inputs"];
    bed.run(&run).ends(1);
    let done = Done { bed, a: text, b: String::new() };
    let input = done.object_of(&done.a);
    writable(&input);
    fs::write(&input, "other bytes").expect("our own file");
    done.bed.write("may", "");
    let said = done.bed.run(&run).ends(0);
    assert_eq!(done.bed.read("results/copy.txt"), done.a, "{}", said.all());
    done.bed.run(&["reclaim"]).ends(0);
    done.is_whole();
}
