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
