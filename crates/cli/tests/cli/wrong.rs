//! Wrong uses of the command: the message and the exit code. One snapshot each.

use crate::support;

use expect_test::expect;
use std::fs;
use support::{Bed, copy_flow};

/// A flow with an input of every plain kind.
const INPUTS: &str = "flow: kinds
inputs:
  text: file
  n: { type: int, default: 1 }
  share: { type: float, default: 0.5 }
  is_new: { type: bool, default: true }
  kind: { type: 'enum<dna, rna>', default: dna }
  many: { type: list<file>, default: [] }
steps:
  say: { run: 'cat ${{ inputs.text }}; echo ${{ inputs.n }} ${{ inputs.share }} ${{ inputs.kind }}', out: { said: text } }
outputs: { said: say.said }
";

fn kinds() -> Bed {
    let bed = Bed::new();
    bed.write("kinds.yaml", INPUTS);
    bed.write("in.txt", "text\n");
    bed
}

#[test]
fn an_unknown_verb_is_not_understood() {
    Bed::new().run(&["rnu", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0419]: unrecognized subcommand 'rnu'

        Usage: onceflow [OPTIONS] <COMMAND>

        For more information, try '--help'.
        -- exit 2
    "#]]);
}

#[test]
fn a_store_that_is_named_must_be_there() {
    Bed::new().run(&["--store", "nowhere", "ls"]).expect(expect![[r#"
        -- stderr
        error[OF0401]: there is no store at [dir]/nowhere
        hint: go to a directory where a flow was run, or name the store with `--store DIR`
        -- exit 2
    "#]]);
}

#[test]
fn a_store_found_in_a_directory_above_is_named() {
    let bed = Bed::new();
    bed.write("two.yaml", "flow: two\nsteps: { a: { run: 'echo 1', out: { t: text } } }\noutputs: { t: a.t }\n");
    let here = bed.run(&["run", "two.yaml"]).ends(0);
    assert!(!here.stderr.contains("using the store"), "{}", here.stderr);
    std::fs::create_dir(bed.path("below")).expect("a directory");
    let mut command = bed.command(&["ls"]);
    let below = bed.said(command.current_dir(bed.path("below")).output().expect("the command starts")).ends(0);
    let named = format!("using the store at {}\n", bed.path(".onceflow").canonicalize().expect("a store").display());
    assert!(below.stderr.starts_with(&named), "{}", below.stderr);
}

#[test]
fn a_step_that_never_runs_is_named() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        "flow: f
steps:
  a: { run: echo a, out: { t: text } }
  b: { run: echo b, out: { t: text } }
outputs: { t: a.t }
",
    );
    bed.run(&["check", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        flow.yaml: flow `f` is sound
        warning: flow.yaml:4: step `b` does not run: nothing reads its outputs (name it in `outputs`, or take away its `out`)
        next: onceflow run flow.yaml
        -- exit 0
    "#]]);
}

#[test]
fn an_option_without_its_value_is_not_understood() {
    Bed::new().run(&["run", "flow.yaml", "--key"]).expect(expect![[r#"
        -- stderr
        error[OF0419]: a value is required for '--key <KEY>' but none was supplied

        For more information, try '--help'.
        -- exit 2
    "#]]);
}

#[test]
fn a_time_without_a_unit_is_not_understood() {
    Bed::new().run(&["run", "flow.yaml", "--keep", "10"]).expect(expect![[r#"
        -- stderr
        error[OF0419]: invalid value '10' for '--keep <TIME>': a time is a number and ms, s, m, h, d or w: 30m, 12h, 7d

        For more information, try '--help'.
        -- exit 2
    "#]]);
}

#[test]
fn an_input_without_a_value_is_not_understood() {
    kinds().run(&["run", "kinds.yaml", "-i", "n"]).expect(expect![[r#"
        -- stderr
        error[OF0419]: invalid value 'n' for '--input <NAME=VALUE>': an input is NAME=VALUE

        For more information, try '--help'.
        -- exit 2
    "#]]);
}

#[test]
fn a_flow_that_is_a_directory_is_said_to_be_one() {
    let bed = Bed::new();
    fs::create_dir(bed.path("flow.yaml")).expect("a directory");
    bed.run(&["run", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0102]: flow.yaml is a directory
        hint: name the flow file in it
        -- exit 2
    "#]]);
}

#[test]
fn a_flow_that_is_no_text_is_said_to_be_none() {
    let bed = Bed::new();
    fs::write(bed.path("flow.yaml"), [0xff, 0xfe, 0, 1, 2]).expect("a file");
    bed.run(&["run", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0102]: flow.yaml is not text: it has a zero byte
        hint: is it the flow file?
        -- exit 4
    "#]]);
}

#[test]
fn an_empty_flow_file_says_what_is_missing() {
    let bed = Bed::new();
    bed.write("flow.yaml", "");
    bed.run(&["check", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0102]: flow.yaml is empty
          --> flow.yaml:1:1
        hint: a flow file starts with `flow: NAME`
        next: 1 problem; `onceflow error CODE` explains one
        -- exit 4
    "#]]);
}

#[test]
fn values_of_the_wrong_kind_are_all_told_at_once() {
    let wrong = ["run", "kinds.yaml", "-i", "text=in.txt", "-i", "n=many", "-i", "share=half", "-i", "is_new=maybe"];
    kinds().run(&[&wrong[..], &["-i", "kind=dan"]].concat()).expect(expect![[r#"
        -- stderr
        error[OF0203]: input `n` must be int, but `many` is given

        error[OF0203]: input `share` must be float, but `half` is given

        error[OF0203]: input `is_new` must be bool, but `maybe` is given
        hint: `true` or `false`

        error[OF0206]: input `kind` cannot be `dan`
        hint: it is one of `dna`, `rna`
        -- exit 2
    "#]]);
}

#[test]
fn an_input_that_is_missing_is_named() {
    kinds().run(&["run", "kinds.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0202]: the input `text` is missing: it is file
        hint: --input text=PATH
        -- exit 2
    "#]]);
}

#[test]
fn an_input_file_that_is_missing_is_named() {
    kinds().run(&["run", "kinds.yaml", "-i", "text=on.txt"]).expect(expect![[r#"
        -- stderr
        error[OF0204]: input `text`: the file `on.txt` is not there
        -- exit 2
    "#]]);
}

#[test]
fn an_input_file_that_is_a_directory_is_said_to_be_one() {
    let bed = kinds();
    fs::create_dir(bed.path("reads")).expect("a directory");
    bed.run(&["run", "kinds.yaml", "-i", "text=reads"]).expect(expect![[r#"
        -- stderr
        error[OF0204]: input `text`: the file `reads` is a directory
        -- exit 2
    "#]]);
}

#[test]
fn an_input_file_that_is_a_pipe_or_a_device_is_refused_without_being_opened() {
    let bed = kinds();
    let made = std::process::Command::new("mkfifo").arg(bed.path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    for (name, input) in [("pipe", "text=pipe"), ("/dev/zero", "text=/dev/zero")] {
        let said = bed.run(&["run", "kinds.yaml", "-i", input]).ends(2).stderr;
        assert_eq!(
            said,
            format!("error[OF0204]: input `text`: the file `{name}` is a pipe or a device, not a regular file\n")
        );
    }
}

#[test]
fn a_glob_that_matches_nothing_is_told() {
    let args = ["run", "kinds.yaml", "-i", "text=in.txt", "-i", "many=reads/*.fq"];
    kinds().run(&args).expect(expect![[r#"
        -- stderr
        error[OF0205]: input `many`: no file matches `reads/*.fq`
        -- exit 2
    "#]]);
}

#[test]
fn a_glob_that_matches_several_is_no_file() {
    let bed = kinds();
    bed.write("on.txt", "");
    bed.run(&["run", "kinds.yaml", "-i", "text=*.txt"]).expect(expect![[r#"
        -- stderr
        error[OF0203]: input `text` is one file, but `*.txt` matches 2
        -- exit 2
    "#]]);
}

#[test]
fn a_file_of_inputs_that_is_broken_says_where() {
    let bed = kinds();
    bed.write("inputs.yaml", "text: in.txt\nn: [1\n");
    bed.run(&["run", "kinds.yaml", "--inputs", "inputs.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0202]: the input `text` is missing: it is file
        hint: --input text=PATH

        error[OF0101]: this is not YAML: unclosed bracket '['
          --> inputs.yaml:2:4
           |  n: [1
           |     ^
        hint: every `{` and `[` needs its end
        -- exit 2
    "#]]);
    bed.run(&["run", "kinds.yaml", "--inputs", "none.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0207]: there is no file none.yaml

        error[OF0202]: the input `text` is missing: it is file
        hint: --input text=PATH
        -- exit 2
    "#]]);
}

#[test]
fn an_output_that_the_flow_does_not_have_is_told_before_anything_runs() {
    let bed = kinds();
    bed.run(&["run", "kinds.yaml", "-i", "text=in.txt", "--output", "siad"]).expect(expect![[r#"
        -- stderr
        error[OF0016]: flow `kinds` has no output `siad`
        hint: did you mean `said`?
        -- exit 2
    "#]]);
    assert!(!bed.path(".onceflow").exists());
}

#[test]
fn a_run_that_is_not_there_is_told_by_every_verb() {
    let bed = kinds();
    bed.run(&["run", "kinds.yaml", "-i", "text=in.txt"]).ends(0);
    bed.run(&["show", "knids"]).expect(expect![[r#"
        -- stderr
        error[OF0402]: there is no run `knids`
        hint: did you mean `kinds`? `onceflow ls` lists all
        -- exit 2
    "#]]);
    for verb in ["show", "watch", "logs", "cancel"] {
        let said = bed.run(&[verb, "nosuch"]).ends(2);
        assert!(said.stderr.starts_with("error[OF0402]: there is no run `nosuch`"), "{verb}: {}", said.stderr);
    }
    bed.run(&["cancel", "kinds"]).expect(expect![[r#"
        -- stderr
        run `kinds` has ended already: it is done, and stays so
        next: onceflow show kinds
        -- exit 1
    "#]]);
}

#[test]
fn a_key_that_is_too_long_or_empty_is_refused() {
    let bed = kinds();
    bed.run(&["run", "kinds.yaml", "-i", "text=in.txt", "--key", ""]).expect(expect![[r#"
        -- stderr
        error[OF0419]: invalid value '' for '--key <KEY>': a key has at least one letter

        For more information, try '--help'.
        -- exit 2
    "#]]);
    let said = bed.run(&["run", "kinds.yaml", "-i", "text=in.txt", "--key", &"x".repeat(10_000)]);
    assert_eq!(said.code, 2, "{}", said.stderr);
}

#[test]
fn a_store_that_is_a_file_is_unusable() {
    let bed = kinds();
    bed.run(&["--store", "in.txt", "run", "kinds.yaml", "-i", "text=in.txt"]).expect(expect![[r#"
        -- stderr
        error[OF0408]: cannot make [dir]/in.txt: File exists (os error 17)
        hint: see `onceflow error OF0408`
        -- exit 75
    "#]]);
}

#[test]
fn any_name_of_a_file_is_data() {
    let bed = Bed::new();
    for name in
        ["two words.txt", "it's.txt", "\"quoted\".txt", "a\nnewline.txt", "$(touch never).txt", "-n.txt", "*.txt"]
    {
        bed.write(name, &format!("in {name}"));
        bed.write("copy.yaml", &copy_flow("copy", "true"));
        bed.write("inputs.json", &serde_json::json!({ "text": name }).to_string());
        bed.run(&["run", "copy.yaml", "--inputs", "inputs.json"]).ends(0);
        assert_eq!(bed.read("results/copy.txt"), format!("in {name}"));
        assert!(!bed.path("never").exists());
    }
}

#[test]
fn a_step_that_does_not_make_what_it_declares_is_told_so() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        "flow: none\nsteps:\n  a: { run: touch other.txt, out: { x: { file: wanted.txt } } }\noutputs: { x: a.x }\n",
    );
    bed.run(&["run", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        run     a
        failed[OF0305] a: output `x` is missing: there is no `wanted.txt` in the work directory
          what is there: `other.txt`
          hint: write to `${{ out.x }}`, or declare the name it really has
          its work directory: [dir]/.onceflow/runs/[id]/work/a.1
        the run failed: a
        next: onceflow logs none a; then the same command goes on where it stopped
        -- exit 1
    "#]]);
}

#[test]
fn a_command_that_is_not_installed_is_told_so() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        "flow: none\nsteps:\n  a: { run: no-such-command --help, out: { x: text } }\noutputs: { x: a.x }\n",
    );
    bed.run(&["run", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        run     a
        failed[OF0303] a: `no-such-command` was not found on the PATH
          the PATH is [path]
          hint: install `no-such-command`, or give its path
        the run failed: a
        next: onceflow logs none a; then the same command goes on where it stopped
        -- exit 1
    "#]]);
}

#[test]
fn a_quiet_run_that_fails_says_why() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        "flow: no\nsteps:\n  a: { run: echo because >&2; exit 4, out: { x: text } }\noutputs: { x: a.x }\n",
    );
    bed.run(&["run", "-q", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        failed[OF0301] a: it ended with exit status 4
          its last lines:
          because
          its work directory: [dir]/.onceflow/runs/[id]/work/a.1
        the run failed: a
        -- exit 1
    "#]]);
}
