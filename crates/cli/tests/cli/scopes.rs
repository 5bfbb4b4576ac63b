//! Scopes in flow files: the delivery example, its failures, and a process that is killed in the middle.

use crate::support::{Bed, signal};
use std::path::Path;

/// A bed with the example, and the arguments that run it with this command as the drive.
fn delivery(drive: &str) -> (Bed, Vec<String>) {
    let bed = Bed::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    let flow = std::fs::read_to_string(root.join("examples/delivery/flow.yaml")).expect("the example");
    bed.write("flow.yaml", &flow);
    let release = std::fs::read_to_string(root.join("examples/delivery/release.yaml")).expect("the example");
    bed.write("release.yaml", &release);
    let ledger = format!("ledger={}", bed.path("ledger").display());
    let mut args: Vec<String> = ["run", "flow.yaml", "--input", "order=soup"].map(String::from).into();
    args.extend([String::from("--input"), ledger, String::from("--input"), format!("drive={drive}")]);
    (bed, args)
}

/// The kinds of notes in the ledger; each key once.
fn noted(bed: &Bed) -> Vec<String> {
    let ledger = bed.read("ledger");
    let notes: std::collections::BTreeSet<&str> = ledger.lines().collect();
    notes.into_iter().map(|note| note.split(' ').next().unwrap_or_default().to_owned()).collect()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn delivered_order_releases_its_robot_before_the_result() {
    let (bed, args) = delivery("true");
    bed.run(&["check", "flow.yaml"]).ends(0);
    let said = bed.run(&words(&args)).ends(0);
    let data = said.json();
    assert_eq!((&data["delivered"], &data["visited"][0]), (&"soup".into(), &"soup".into()));
    assert_eq!(noted(&bed), ["released", "reserved"]);
    bed.run(&["fsck"]).ends(0);
    bed.run(&["graph", "flow.yaml"]).ends(0);
}

#[test]
fn failed_drive_cancels_the_scope_and_releases_its_robot() {
    let (bed, args) = delivery("false");
    let said = bed.run(&words(&args));
    assert!(said.all().contains("OF0322"), "{}", said.all());
    said.ends(1);
    assert_eq!(noted(&bed), ["released", "reserved"]);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn killed_delivery_goes_on_where_it_was() {
    let (bed, mut args) = delivery("true");
    let gate = bed.gate("drive");
    let drive = args.last_mut().expect("arguments");
    *drive = format!("drive={}", gate.shell());
    for _ in 0..2 {
        let mut child = bed.start(&words(&args));
        gate.until_there();
        signal(&child, "KILL");
        child.wait().expect("it was killed");
    }
    assert_eq!(noted(&bed), ["reserved"], "nothing is released while the session goes on");
    let child = bed.start(&words(&args));
    gate.until_there();
    gate.open();
    bed.end(child).ends(0);
    assert_eq!(noted(&bed), ["released", "reserved"], "each request has one key, whatever was killed");
    bed.run(&["fsck"]).ends(0);
}

/// The example with a drive that waits at a gate and a release that takes a while.
fn slow_delivery() -> (Bed, Vec<String>, crate::support::Gate) {
    let (bed, mut args) = delivery("true");
    let release = bed.read("release.yaml").replace("echo \"released", "sleep 0.3; echo \"released");
    bed.write("release.yaml", &release);
    let gate = bed.gate("drive");
    *args.last_mut().expect("arguments") = format!("drive={}", gate.shell());
    (bed, args, gate)
}

/// The release does this as well, after it has noted what it does.
fn release_does(bed: &Bed, more: &str) {
    let release = bed.read("release.yaml");
    bed.write("release.yaml", &release.replace(">> ${{ ledger }}", &format!(">> ${{{{ ledger }}}}; {more}")));
}

/// The robot is released, and neither rows nor work directories are left.
fn nothing_is_left(bed: &Bed) {
    assert_eq!(noted(bed), ["released", "reserved"]);
    bed.run(&["fsck", "--at-rest"]).ends(0);
    let runs = bed.path(".onceflow/runs");
    let left = std::fs::read_dir(&runs).map_or(0, |entries| {
        let works = entries.flatten().map(|run| run.path().join("work"));
        works.filter_map(|work| std::fs::read_dir(work).ok()).map(Iterator::count).sum()
    });
    assert_eq!(left, 0, "work directories are left in {}", runs.display());
}

#[test]
fn cancelled_delivery_releases_its_robot_before_the_run_ends() {
    let (bed, args, gate) = slow_delivery();
    let child = bed.start(&words(&args));
    gate.until_there();
    bed.run(&["cancel", "delivery"]).ends(5);
    bed.end(child).ends(5);
    nothing_is_left(&bed);
}

#[test]
fn cancel_of_a_killed_delivery_releases_its_robot() {
    let (bed, args, gate) = slow_delivery();
    let mut child = bed.start(&words(&args));
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    bed.run(&["cancel", "delivery"]).ends(5);
    nothing_is_left(&bed);
}

#[test]
fn mistakes_in_a_scope_are_told_all_at_once_with_their_places() {
    let bed = Bed::new();
    let flow = "
flow: wrong
inputs: { n: int }
steps:
  s:
    scope:
      start: begin
      buffers: { kept: { keep: some } }
      ops:
        a: { run: 'echo ${{ inputs.n }}', next: nowhere }
        b: { join: [kapt], next: terminate }
        c: { flow: go, next: terminate }
        d: { expr: message }
";
    bed.write("flow.yaml", flow);
    let said = bed.run(&["check", "flow.yaml"]);
    let all = said.all();
    for wanted in [
        "there is no operation `begin` here",
        "`keep` cannot be `some`",
        "operations of a scope see `message` only",
        "there is no operation `nowhere` here",
        "there is no buffer `kapt` here",
        "has `flow`, which operations of scopes do not have",
        "operation `d` has no `next`",
        "flow.yaml:7:14",
    ] {
        assert!(all.contains(wanted), "{wanted} is missing in\n{all}");
    }
}

#[test]
fn killed_delivery_started_with_other_inputs_releases_the_first_robot_first() {
    let (bed, mut args, gate) = slow_delivery();
    let mut child = bed.start(&words(&args));
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    let order = args.iter_mut().find(|arg| **arg == "order=soup").expect("the order");
    *order = String::from("order=tea");
    *args.last_mut().expect("arguments") = String::from("drive=true");
    bed.run(&words(&args)).ends(0);
    let ledger = bed.read("ledger");
    let kinds: Vec<_> = ledger.lines().filter_map(|note| note.split(' ').next()).collect();
    assert_eq!(kinds, ["reserved", "released", "reserved", "released"], "{ledger}");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn killed_delivery_whose_step_is_gone_releases_its_robot_before_the_run_ends() {
    let (bed, args, gate) = slow_delivery();
    let mut child = bed.start(&words(&args));
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    let flow = "flow: delivery\ninputs: { order: text }\nsteps:\n  say: { run: 'echo ${{ inputs.order }}', out: { said: { text: stdout } } }\noutputs: { said: say.said }\n";
    bed.write("flow.yaml", flow);
    bed.run(&["run", "flow.yaml", "--input", "order=soup"]).ends(0);
    nothing_is_left(&bed);
}

#[test]
fn killed_delivery_with_a_changed_scope_is_cleaned_with_the_scope_it_began_with() {
    let (bed, mut args, gate) = slow_delivery();
    let mut child = bed.start(&words(&args));
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    bed.write("release.yaml", &bed.read("release.yaml").replace("echo \"released", "echo \"freed"));
    *args.last_mut().expect("arguments") = String::from("drive=true");
    bed.run(&words(&args)).ends(0);
    let ledger = bed.read("ledger");
    let kinds: Vec<_> = ledger.lines().filter_map(|note| note.split(' ').next()).collect();
    assert_eq!(kinds, ["reserved", "released", "reserved", "freed"], "{ledger}");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn failed_cleanup_is_reported_and_the_result_stands() {
    let (bed, args) = delivery("true");
    release_does(&bed, "exit 3");
    let said = bed.run(&words(&args)).ends(0);
    assert_eq!(said.json()["delivered"], "soup");
    assert!(said.all().contains("cleanup release"), "{}", said.all());
    let shown = bed.run(&["show", "delivery"]).ends(0);
    assert!(shown.all().contains("cleanup release") && shown.all().contains("the outcome stands"), "{}", shown.all());
    let data = bed.run(&["show", "delivery", "--json"]).ends(0).json();
    assert_eq!(data["failed_cleanups"][0]["step"], "deliver", "{data}");
}

#[test]
fn cleanup_that_fails_when_a_run_is_cancelled_is_reported() {
    let (bed, args, gate) = slow_delivery();
    release_does(&bed, "exit 3");
    let mut child = bed.start(&words(&args));
    gate.until_there();
    signal(&child, "KILL");
    child.wait().expect("it was killed");
    bed.run(&["cancel", "delivery"]).ends(5);
    let shown = bed.run(&["show", "delivery"]).ends(0);
    assert!(shown.all().contains("cleanup release"), "{}", shown.all());
    nothing_is_left(&bed);
}

#[test]
fn delivery_killed_in_each_of_its_commands_releases_every_robot_once() {
    for point in ["reserve", "drive", "release"] {
        let (bed, mut args) = delivery("true");
        let gate = bed.gate(point);
        let flow = bed.read("flow.yaml");
        // Each command is killed when it has had its effect, and before its end is committed.
        let flow = match point {
            "reserve" => {
                flow.replace("            printf '{", &format!("            {}\n            printf '{{", gate.shell()))
            }
            "release" => {
                release_does(&bed, &gate.shell());
                flow
            }
            _ => flow,
        };
        bed.write("flow.yaml", &flow);
        if point == "drive" {
            *args.last_mut().expect("arguments") = format!("drive={}", gate.shell());
        }
        for _ in 0..2 {
            let mut child = bed.start(&words(&args));
            gate.until_there();
            signal(&child, "KILL");
            child.wait().expect("it was killed");
        }
        let child = bed.start(&words(&args));
        gate.until_there();
        gate.open();
        bed.end(child).ends(0);
        nothing_is_left(&bed);
    }
}
