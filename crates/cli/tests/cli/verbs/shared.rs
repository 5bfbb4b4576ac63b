//! The same verbs on stores that several processes share, in a directory and on a server.

use super::{ran, support::team::stores, three};

#[test]
fn a_run_that_any_worker_may_take_is_retried_forked_and_carried_away() {
    for team in stores() {
        three(&team.bed, "keep: 1h\n");
        team.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2", "--shared"]).ends(1);
        assert_eq!(ran(&team.bed), "x y z");
        team.bed.write("ok", "");
        team.run(&["check", "sum.yaml", "--against-runs"]).ends(0);
        let said = team.run(&["retry", "sum"]).ends(0);
        assert_eq!((ran(&team.bed).as_str(), said.stdout.trim()), ("z", r#"{"z":"results/z.txt","x":"x 1"}"#));
        team.run(&["fork", "sum", "--key", "other", "-i", "b=3"]).ends(0);
        assert_eq!(ran(&team.bed), "y z");
        let why = team.run(&["why", "other", "x", "--json"]).ends(0).json();
        assert_eq!((&why["fate"], &why["plans"][0]["reason"]), (&"reused".into(), &"kept".into()), "{why}");
        team.run(&["diff", "sum", "other"]).ends(1);
        assert_eq!(team.run(&["du", "--json"]).ends(0).json()["runs"].as_array().map(Vec::len), Some(2));
        team.run(&["export", "other", "other.run"]).ends(0);
        team.run(&["import", "other.run", "--key", "back"]).ends(0);
        team.run(&["import", "other.run", "--store", "elsewhere"]).ends(0);
        team.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=3", "--key", "back"]).ends(0);
        team.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=3", "--key", "other", "--store", "elsewhere"]).ends(0);
        assert_eq!(ran(&team.bed), "");
        team.run(&["fsck"]).ends(0);
        team.run(&["fsck", "--store", "elsewhere"]).ends(0);
    }
}
