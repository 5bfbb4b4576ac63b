//! The doctor finds problems, says how to fix them, and has an exit code that matches its findings.

use crate::support;

use support::Bed;

/// Returns the finding of one check.
fn found<'a>(data: &'a serde_json::Value, check: &str) -> &'a serde_json::Value {
    let all = data["checks"].as_array().expect("checks");
    all.iter().find(|one| one["check"] == check).unwrap_or_else(|| panic!("{check}: {data}"))
}

#[test]
fn a_place_without_a_store_is_looked_at_and_left_as_it_is() {
    let bed = Bed::new();
    let data = bed.run(&["doctor", "--json"]).ends(0).json();
    for check in ["store", "room", "disk", "tmp", "shell", "clock", "limits"] {
        let one = found(&data, check);
        assert!(one["status"] != "fail", "{one}");
        assert_eq!(one["fix"].is_null(), one["status"] == "ok", "what is not well says what to do: {one}");
    }
    assert_eq!(std::fs::read_dir(bed.dir.path()).expect("a directory").count(), 0);
}

#[test]
fn a_store_is_opened_and_its_runs_are_counted() {
    let bed = Bed::new();
    bed.write("f.yaml", "flow: f\nsteps:\n  a: { run: echo hi, out: { x: text } }\noutputs: { x: a.x }\n");
    bed.run(&["run", "f.yaml"]).ends(0);
    let said = bed.run(&["doctor"]).ends(0);
    assert!(
        said.stdout.lines().any(|line| line.starts_with("ok    store ") && line.contains("format 1, 1 run,")),
        "{}",
        said.stdout
    );
}

#[test]
fn a_damaged_store_fails_with_its_exit_code_and_what_to_do() {
    let bed = Bed::new();
    bed.write("f.yaml", "flow: f\nsteps:\n  a: { run: echo hi, out: { x: text } }\noutputs: { x: a.x }\n");
    bed.run(&["run", "f.yaml"]).ends(0);
    let mut look = vec![bed.path(".onceflow")];
    while let Some(directory) = look.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                look.push(path);
            } else if name.contains("log")
                || name.contains("snap")
                || name.contains("seg")
                || name.ends_with(".journal")
            {
                let len = std::fs::metadata(&path).expect("a file").len();
                std::fs::write(&path, vec![0xa5; usize::try_from(len).expect("small")]).expect("a file");
            }
        }
    }
    let data = bed.run(&["doctor", "--json"]);
    assert!(data.code == 7 || data.code == 75, "{}", data.all());
    let data = data.json();
    assert_eq!(found(&data, "store")["status"], "fail");
    assert!(found(&data, "store")["fix"].as_str().is_some_and(|fix| fix.contains("onceflow error OF04")), "{data}");
}

#[test]
fn a_server_that_is_not_there_is_a_failure() {
    let bed = Bed::new();
    let data = bed.run(&["doctor", "--json", "--store", "redis://127.0.0.1:1"]).ends(75).json();
    assert_eq!((&data["ok"], &found(&data, "server")["status"]), (&false.into(), &"fail".into()));
    let shell = bed
        .said(bed.command(&["doctor", "--json"]).env("PATH", bed.dir.path()).output().expect("it starts"))
        .ends(1)
        .json();
    assert_eq!(found(&shell, "shell")["message"], "there is no `sh`");
}

#[test]
fn the_clock_of_a_server_is_compared_with_ours() {
    for team in support::team::stores() {
        let is_told = |data: &serde_json::Value| {
            data["checks"].as_array().into_iter().flatten().any(|one| one["check"] == "time" && one["status"] == "ok")
        };
        team.bed.write("f.yaml", "flow: f\nsteps:\n  a: { run: echo hi, out: { x: text } }\noutputs: { x: a.x }\n");
        team.run(&["run", "f.yaml", "-q"]).ends(0);
        assert_eq!(is_told(&team.run(&["doctor", "--json"]).ends(0).json()), team.is_server());
    }
}
