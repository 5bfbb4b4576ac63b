//! Steps that move, link and mount directories outside their work directory. Every target is a directory that the test
//! made, with a canary in it.

use crate::support::{Lab, One, shown};
use onceflow_core::model::Type;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A directory outside the store, and a file in it.
struct Canary(PathBuf);

impl Canary {
    fn new(lab: &Lab) -> Self {
        let path = lab.directory.path().join("canary");
        fs::create_dir_all(path.join("deep")).unwrap();
        fs::write(path.join("bird"), "sings").unwrap();
        fs::write(path.join("deep/bird"), "sings").unwrap();
        Canary(path)
    }

    fn check(&self, after: &str) {
        let mut found = BTreeMap::new();
        let mut open = vec![self.0.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
                let name = path.strip_prefix(&self.0).unwrap().display().to_string();
                match kind.is_dir() {
                    true => open.push(path),
                    false => drop(found.insert(name, fs::read_to_string(&path).unwrap())),
                }
            }
        }
        let sings = |name: &str| (String::from(name), String::from("sings"));
        assert_eq!(found, BTreeMap::from([sings("bird"), sings("deep/bird")]), "after: {after}");
    }
}

/// Replaces a path with a link to the canary; the original is moved beside it.
fn replace(path: &str) -> String {
    format!("mv -T {path} {path}.x && ln -sT CANARY {path}")
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_behind_a_link_that_a_step_made_is_touched() {
    let lab = Lab::new().await;
    let canary = Canary::new(&lab);
    let run = async |key: &str, script: &str, ty: Type, place: &str| {
        let script = script.replace("CANARY", canary.0.to_str().unwrap());
        let given = lab.run(key, &One::command(&script).output("o", ty, place)).await;
        canary.check(key);
        given.map(|given| shown(&given[0]))
    };
    let own = replace("$d");
    let (file, text, dir) = (|| Type::File, || Type::Text, || Type::Directory);
    // A file in the created work directory is an output, even if the step has moved the directory.
    let given = run("moved", &format!("echo 1 > o; d=$PWD; cd /; {own}"), file(), "o").await;
    assert_eq!(given.unwrap(), "o=1\n");
    let told = run("theirs", &format!("d=$PWD; cd /; {own}"), file(), "bird").await.unwrap_err();
    assert!(told.contains("OF0305: output `o` is missing: there is no `bird`"), "{told}");
    let told = run("copied", "echo 1 > o; d=$PWD; cd /; rm -r $d; ln -sT CANARY $d", file(), "o").await.unwrap_err();
    assert!(told.contains("OF0306: the step removed its work directory") && told.contains("copy"), "{told}");
    for (key, name) in [("in", "in"), ("tmp", ".tmp")] {
        let given = run(key, &format!("echo 1 > o; {}", replace(name)), text(), "o").await;
        assert_eq!(given.unwrap(), "1");
    }
    // A directory on the way is a link, and an output that has another name elsewhere is copied.
    let told = run("way", "rmdir a; ln -sT CANARY a", file(), "a/bird").await.unwrap_err();
    assert!(told.contains("`a/bird` is a link that leads out of the work directory"), "{told}");
    assert_eq!(run("hard", "ln CANARY/bird o", file(), "o").await.unwrap(), "o=sings");
    let told = run("tree", "rmdir o; ln -sT CANARY o", dir(), "o").await.unwrap_err();
    assert!(told.contains("is a link that leads out of the work directory"), "{told}");
    // All directories above the work directory.
    for (key, up) in [("work", ".."), ("run", "../.."), ("out", "../../out")] {
        let made = "mkdir -p ../../out; echo 1 > o; d=$(realpath -m";
        drop(run(key, &format!("{made} {up}); cd /; {}", replace("$d")), file(), "o").await);
    }
    assert_eq!(run("after", "echo 2 > o", text(), "o").await.unwrap(), "2");
    lab.engine.stop();
    drop(lab.engine);
    canary.check("the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_work_directory_is_left_alone_and_reported() {
    let lab = Lab::new().await;
    let canary = Canary::new(&lab);
    let script = format!("d=$PWD; cd /; {}", replace("$d").replace("CANARY", canary.0.to_str().unwrap()));
    lab.run("k", &One::command(&script)).await.unwrap();
    let handle = lab.engine.find("k").await.unwrap();
    let log = fs::read_to_string(lab.home.log(handle.id(), "/step")).unwrap();
    assert!(log.contains("onceflow: left alone: ") && log.contains("step.1: the step put a link in place"), "{log}");
    canary.check("k");
    lab.home.clear(handle.id());
    assert_eq!(lab.left(), Vec::<String>::new(), "all of it goes with the run");
    canary.check("clear");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_in_place_of_an_output_is_refused_without_blocking() {
    let lab = Lab::new().await;
    let cases = [
        ("file", "mkfifo o", Type::File),
        ("text", "mkfifo o", Type::Text),
        ("int", "mkfifo x; ln -s x o", Type::Int),
        ("list", "mkfifo o", Type::list(Type::File)),
        ("dir", "mkfifo o/x", Type::Directory),
    ];
    for (key, script, ty) in cases {
        let told = lab.run(key, &One::command(script).output("o", ty, "o")).await.unwrap_err();
        assert!(told.contains("OF0306: output `o`: `o"), "{key}: {told}");
        assert!(told.contains("is neither a file nor a directory: it is a FIFO"), "{key}: {told}");
    }
    let script = "rm .tmp/stdout; mkfifo .tmp/stdout; echo 5";
    assert_eq!(lab.texts("stdout", &One::command(script).output("o", Type::Int, "stdout")).await, ["5"]);
}

/// An action of a step. Every one moves the entry that it replaces with a link beside it, and itself neither follows a
/// link nor enters a mount.
#[derive(Clone, Copy, Debug)]
enum Deed {
    LinkInside(&'static str),
    LinkAbove(&'static str),
    HardLink(&'static str),
    Swap(&'static str, &'static str),
    Remove(&'static str),
    Fifo(&'static str),
    Shut,
    Mount(&'static str),
}

const INSIDE: [&str; 5] = ["in", ".tmp", "o", "d", "x"];
/// The work directory, the directories above it, and that of outputs.
const ABOVE: [&str; 5] = [".", "..", "../..", "../../..", "../../out"];

fn deed(may_mount: bool) -> BoxedStrategy<Deed> {
    let inside = || prop::sample::select(&INSIDE[..]);
    let deeds = prop_oneof![
        inside().prop_map(Deed::LinkInside),
        prop::sample::select(&ABOVE[..]).prop_map(Deed::LinkAbove),
        inside().prop_map(Deed::HardLink),
        (inside(), inside()).prop_map(|(one, two)| Deed::Swap(one, two)),
        inside().prop_map(Deed::Remove),
        inside().prop_map(Deed::Fifo),
        Just(Deed::Shut),
    ];
    match may_mount {
        true => prop_oneof![4 => deeds, 1 => inside().prop_map(Deed::Mount)].boxed(),
        false => deeds.boxed(),
    }
}

impl Deed {
    fn script(self) -> String {
        match self {
            Deed::LinkInside(name) => {
                format!("{{ rm -rf ./{name}.x; mv -T ./{name} ./{name}.x; ln -sT CANARY ./{name}; }}")
            }
            Deed::LinkAbove(up) => {
                format!("{{ p=$(realpath -s -m \"$d/{up}\"); test ! -L \"$p\" && {}; }}", replace("\"$p\""))
            }
            Deed::HardLink(name) => format!("ln -T CANARY/bird ./{name}"),
            Deed::Swap(one, two) => {
                format!("{{ mv -T ./{one} ./swapped && mv -T ./{two} ./{one}; mv -T ./swapped ./{two}; }}")
            }
            // Removing a mounted directory would remove the canary: the deed of the step, not of the engine.
            Deed::Remove(name) => format!("{{ mountpoint -q ./{name} || rm -rf ./{name}; }}"),
            Deed::Fifo(name) => format!("mkfifo ./{name}"),
            Deed::Shut => String::from("chmod 500 ."),
            Deed::Mount(name) => {
                format!("{{ test ! -L ./{name} && mkdir -p ./{name} && mount --bind CANARY ./{name}; }}")
            }
        }
    }
}

const IN_NAMESPACE: &str = "ONCEFLOW_TEST_IN_NAMESPACE";
const NAME: &str = "commands::tampering::renames_links_and_mounts_of_a_step_change_nothing_outside";

/// Runs this very test in a mount namespace of its own; false if the system allows none. Nothing below `directory` is
/// removed inside the namespace: the test outside, which sees no mounts, removes it.
fn in_namespace(directory: &Path) -> bool {
    let can = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return false;
    }
    let mut inner = Command::new("unshare");
    inner.args(["-m", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    inner.args([NAME, "--exact", "--nocapture"]).env(IN_NAMESPACE, "1").env("TMPDIR", directory);
    let output = inner.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn renames_links_and_mounts_of_a_step_change_nothing_outside() {
    let directory = tempfile::tempdir().unwrap();
    let is_inside = std::env::var_os(IN_NAMESPACE).is_some();
    if !is_inside && in_namespace(directory.path()) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut lab = runtime.block_on(Lab::new());
    // With mounts in it, removing the directory would remove the mounted files.
    lab.directory.disable_cleanup(is_inside);
    let canary = Canary::new(&lab);
    let runs = lab.home.root.join("runs");
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let deeds = prop::collection::vec(deed(is_inside), 1..5);
    let number = std::cell::Cell::new(0);
    let done = runner.run(&deeds, |deeds| {
        let key = format!("k{}", number.replace(number.get() + 1));
        let all: Vec<_> = deeds.iter().map(|deed| format!("{} || true\n", deed.script())).collect();
        let script = format!("d=$PWD\necho 1 > o\n{}", all.concat().replace("CANARY", canary.0.to_str().unwrap()));
        let one = One::command(&script).output("o", Type::File, "o").output("d", Type::Directory, "d");
        // The step may fail; only the canary matters.
        let _given = runtime.block_on(lab.run(&key, &one));
        canary.check(&script);
        if let Ok(handle) = runtime.block_on(lab.engine.find(&key)) {
            lab.home.tidy(handle.id());
            lab.home.tidy_after_the_dead();
            lab.home.clear(handle.id());
        }
        canary.check(&script);
        if runs.is_symlink() {
            fs::remove_file(&runs).unwrap();
            fs::rename(runs.with_extension("x"), &runs).unwrap();
        }
        Ok(())
    });
    done.unwrap();
    let Lab { engine, .. } = lab;
    engine.stop();
    drop(engine);
    canary.check("the end");
}
