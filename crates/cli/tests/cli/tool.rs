//! Verbs that are about the tool itself: completions, manual pages, the reference.

use crate::support;

use support::Bed;

#[test]
fn every_shell_gets_a_script_that_knows_the_verbs() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = bed.run(&["completions", shell]).ends(0);
        assert!(said.stdout.contains("explain") && said.stdout.contains("reclaim"), "{shell}");
        assert!(said.stderr.is_empty(), "{shell}: {}", said.stderr);
    }
    bed.run(&["completions", "tcsh"]).ends(2);
}

#[test]
fn bash_reads_its_script_and_completes_a_verb() {
    let bed = Bed::new();
    let script = bed.run(&["completions", "bash"]).ends(0).stdout;
    bed.write("complete.bash", &script);
    let ask = "source ./complete.bash; COMP_WORDS=(onceflow expl); COMP_CWORD=1; _onceflow onceflow expl onceflow; echo \"${COMPREPLY[*]}\"";
    let said = std::process::Command::new("bash").args(["-c", ask]).current_dir(bed.dir.path()).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "explain", "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn there_is_a_manual_page_for_every_verb_that_is_shown() {
    let bed = Bed::new();
    assert!(bed.run(&["man"]).ends(0).stdout.contains(".TH ONCEFLOW 1"));
    bed.run(&["man", "pages"]).ends(0);
    let help = bed.run(&["--help"]).ends(0).stdout;
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut pages = 1;
    for verb in verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help") {
        let page = bed.read(&format!("pages/onceflow-{verb}.1"));
        assert!(page.contains(".SH SYNOPSIS") && page.contains("onceflow"), "{verb}");
        pages += 1;
    }
    assert_eq!(std::fs::read_dir(bed.path("pages")).expect("a directory").count(), pages);
    bed.write("taken", "a file");
    let said = bed.run(&["man", "taken"]).ends(2);
    assert!(said.stderr.starts_with("error[OF0440]: cannot make taken: "), "{}", said.stderr);
}

#[test]
fn the_reference_has_every_verb_option_and_exit_code() {
    let bed = Bed::new();
    let text = bed.run(&["reference"]).ends(0).stdout;
    for part in [
        "## onceflow run\n",
        "| `-i, --input NAME=VALUE` |",
        "Environment: `ONCEFLOW_STORE`.",
        "Also called `gc`.",
        "| 143 | terminated (SIGTERM); the state is safe |",
        "| `RUN` | A key, the beginning of a key or id, or - for the latest. Default: `-`. |",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("attend") && !text.contains("## onceflow reference"), "what is hidden stays so");
}
