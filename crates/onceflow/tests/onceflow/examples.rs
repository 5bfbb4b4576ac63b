//! The examples do what their headers say, as processes of their own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the path where cargo puts an example: it builds examples before it runs tests.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("the path of this test");
    let profile = here.ancestors().nth(2).expect("target/debug/deps/this");
    let path = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "the examples are not built: `cargo test -p onceflow` builds them, naming a test does not");
    path
}

/// Runs an example, which must succeed; returns the lines it prints.
fn run(name: &str, argument: Option<&Path>) -> Vec<String> {
    let output = Command::new(example(name)).args(argument).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    assert_eq!(err, "", "{name} complains");
    out.lines().map(String::from).collect()
}

#[test]
fn word_count_counts_words() {
    let lines = run("word_count", None);
    assert!(lines[0].starts_with("14 words in "), "{lines:?}");
    assert_eq!(lines[1..3], ["     3 once", "     2 a"]);
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("a"), "x y x").unwrap();
    assert_eq!(run("word_count", Some(place.path()))[1..], ["     2 x", "     1 y"]);
    assert_eq!(std::fs::read_to_string(place.path().join("a")).unwrap(), "x y x", "the file is still there");
}

#[test]
fn the_saga_undoes_what_it_did_once_each() {
    let place = tempfile::tempdir().unwrap();
    let effects = ["charge 1299 cents", "reserve a lamp", "unreserve a lamp", "refund 1299 cents"];
    // Started again under its key, an order that was undone is a new life of it.
    for _ in 0..2 {
        let lines = run("saga", Some(&place.path().join("store")));
        assert_eq!(lines[..4], effects);
        let why = "run `order-17` gave no result: failed and undone: /ship failed at attempt 1: a lamp cannot be shipped; \
                   caused by: no road leads there";
        assert_eq!(lines[5], why);
        let told: Vec<_> = lines[8..].iter().map(|line| line.trim().trim_start_matches("order-17: ")).collect();
        let undone: Vec<_> = told.iter().filter(|what| what.starts_with("did undo")).collect();
        assert_eq!(undone, [&"did undo /reserve", &"did undo /charge"], "{lines:#?}");
        assert_eq!(told.last(), Some(&"did end: undone"));
        assert!(told.contains(&"will run /charge, attempt 2"), "{lines:#?}");
    }
}

#[test]
fn a_delivery_releases_its_lift_whatever_happens() {
    let lines = run("delivery", None);
    let expected = [
        "delivery to floor 3",
        "  lift 3 is reserved",
        "  lift 3 is released",
        "delivery to floor 12",
        "  lift 12 is reserved",
        "  lift 12 is released",
        "at floor 3 by lift 3",
        "cancelled at drive: failed: floor 12 is blocked",
        "  lift 5 is reserved",
        "  lift 5 is released",
        "nothing is reserved",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn fibonacci_loops() {
    assert_eq!(run("fibonacci", None), ["fibonacci(50) = 12586269025"]);
}

#[test]
fn pascal_builds_a_triangle() {
    let rows = run("pascal", None);
    let rows: Vec<_> = rows.iter().map(|row| row.trim()).collect();
    assert_eq!(rows, ["1", "1 1", "1 2 1", "1 3 3 1", "1 4 6 4 1"]);
}

#[test]
fn the_walk_goes_down() {
    assert_eq!(run("walk", None), ["4321 bytes in 5 directories"]);
}

#[test]
fn a_changed_input_redoes_only_what_depends_on_it() {
    let lines = run("changed_input", None).join("\n");
    let (first, then) = lines.split_once("\n\n").expect("two runs");
    assert!(first.ends_with("sales 300, costs 50, left 250"), "{first}");
    expect_test::expect![[r#"
        the sales change; before:
        run /parse_sales: input csv changed
        skip /parse_costs: not needed
        run /sales: /parse_sales reruns
        reuse /costs: kept
        run /report: /sales reruns

          parsing "100, 250"
          summing [100, 250]
          reporting
        sales 350, costs 50, left 300

        after:
        reuse /parse_sales: kept
        reuse /parse_costs: kept
        reuse /sales: kept
        reuse /costs: kept
        reuse /report: kept
    "#]]
    .assert_eq(&format!("{}\n", then.trim_end()));
}

#[test]
fn a_loop_holds_as_much_after_many_rounds_as_after_few_and_nothing_in_the_end() {
    let [few, many] = ["20", "400"].map(|rounds| run("state_curve", Some(Path::new(rounds))));
    let most = |line: &String| {
        let (_, rows) = line.split_once(": at most ").expect("how much there was");
        rows.split(' ').next().and_then(|rows| rows.parse::<u64>().ok()).expect("a number")
    };
    assert!(many[0].starts_with("loop of 400") && most(&many[0]) <= most(&few[0]), "{few:?} {many:?}");
    assert!(many[1].starts_with("list of 400") && most(&many[1]) < 400 + 50, "{many:?}");
    assert!(many.iter().all(|line| line.ends_with(" 0 rows in the end")), "{many:?}");
}

#[test]
fn workers_share_a_run_that_another_process_started_and_leave_when_asked() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let worker = || {
        let mut command = Command::new(example("worker"));
        let mut child = command.arg(&store).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line, "works\n");
        (child, out)
    };
    let workers = [worker(), worker()];
    let output = Command::new(example("worker")).arg(&store).args(["run", "a", "40"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "22140\n", "{}", String::from_utf8_lossy(&output.stderr));
    for (mut child, mut out) in workers {
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
        assert!(child.wait().unwrap().success() && rest == "done\n", "{rest}");
    }
}
