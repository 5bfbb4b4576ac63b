//! A store whose rows are in a file of pages, as users meet it.

use crate::support::Bed;

const FLOW: &str = "
flow: two
steps:
  a: { run: \"printf 1\", out: { t: text } }
  b: { run: \"printf ${{ a.t }}2\", out: { t: text } }
outputs: { t: b.t }
";

#[test]
fn a_flow_runs_on_a_paged_store_and_every_tool_knows_it() {
    let bed = Bed::new();
    bed.write("two.yaml", FLOW);
    bed.run(&["run", "two.yaml", "--keep", "1d", "--key", "k", "--store", "paged:rows"]).ends(0);
    assert!(bed.path("rows/pages").exists());
    // Once made, the directory says what it is.
    for store in ["rows", "paged:rows"] {
        bed.run(&["show", "k", "--store", store]).ends(0);
        let fsck = bed.run(&["fsck", "--store", store, "--json"]).ends(0).json();
        assert_eq!((fsck["problems"].as_array(), fsck["leaks"].as_array()), (Some(&vec![]), Some(&vec![])), "{fsck}");
        let doctor = bed.run(&["doctor", "--store", store]);
        assert!(doctor.stdout.contains("paged, format 1, 1 run"), "{}", doctor.stdout);
        let du = bed.run(&["du", "--store", store]).ends(0);
        assert!(!du.stdout.contains("not known to be onceflow's"), "{}", du.stdout);
    }
    bed.run(&["export", "k", "k.run", "--store", "rows"]).ends(0);
    bed.run(&["import", "k.run", "--store", "journal:copy"]).ends(0);
    bed.run(&["import", "k.run", "--store", "paged:pages"]).ends(0);
    bed.run(&["show", "k", "--store", "copy"]).ends(0);
    bed.run(&["show", "k", "--store", "pages"]).ends(0);
}

#[test]
fn a_directory_opened_as_the_wrong_kind_says_what_it_is() {
    let bed = Bed::new();
    bed.write("two.yaml", FLOW);
    bed.run(&["run", "two.yaml", "--store", "rows"]).ends(0);
    let refused = bed.run(&["ls", "--store", "paged:rows"]).ends(2).stderr;
    assert!(refused.contains("holds a journal store") && refused.contains("hint: open it as `journal:"), "{refused}");
}

#[test]
fn a_setting_may_name_a_paged_store() {
    let bed = Bed::new();
    bed.write("two.yaml", FLOW);
    bed.write("onceflow.toml", "store = \"paged:rows\"\n");
    bed.run(&["run", "two.yaml"]).ends(0);
    assert!(bed.path("rows/pages").exists());
    let shown = bed.run(&["config"]).ends(0).stdout;
    assert!(shown.contains("paged:"), "{shown}");
}
