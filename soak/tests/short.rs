//! A soak of a few seconds, with everything it checks. `ONCEFLOW_LONG=1` soaks for five minutes.

use std::process::Command;

#[test]
fn processes_killed_for_a_while_leave_every_run_right_and_nothing_behind() {
    let seconds = if std::env::var_os("ONCEFLOW_LONG").is_some() { "300" } else { "8" };
    let soak = Command::new(env!("CARGO_BIN_EXE_onceflow-soak")).args(["--seconds", seconds, "--json"]).output();
    let soak = soak.expect("the soak starts");
    let told = String::from_utf8_lossy(&soak.stdout);
    assert!(soak.status.success(), "{told}\n{}", String::from_utf8_lossy(&soak.stderr));
    let told: serde_json::Value = serde_json::from_str(&told).expect("one line of JSON");
    for some in ["runs", "steps", "kills", "restarts"] {
        assert!(told[some].as_u64() > Some(0), "no {some}: {told}");
    }
    for none in ["rows_left", "objects_left", "fsck_problems", "fsck_leaks"] {
        assert_eq!(told[none], 0, "{none}: {told}");
    }
}

#[test]
fn attacks_that_once_broke_the_promise_find_nothing() {
    let seconds = if std::env::var_os("ONCEFLOW_LONG").is_some() { "120" } else { "12" };
    let attack = Command::new(env!("CARGO_BIN_EXE_onceflow-attack")).args(["--seconds", seconds, "--json"]).output();
    let attack = attack.expect("the attack starts");
    let told = String::from_utf8_lossy(&attack.stdout);
    assert!(attack.status.success(), "{told}\n{}", String::from_utf8_lossy(&attack.stderr));
    let told: serde_json::Value = serde_json::from_str(&told).expect("one line of JSON");
    for (attack, some) in [("load", "runs"), ("links", "tricks"), ("damage", "damages"), ("crashes", "kills")] {
        assert!(told[attack][some].as_u64() > Some(0), "no {some}: {told}");
    }
}
