//! The inputs given to a run become values of their types, or all problems are reported at once.

use super::support::{good, shown};
use expect_test::{Expect, expect};
use onceflow_spec::{GivenInputs, LoadedFlow};
use std::{fs, path::Path};

fn flow() -> LoadedFlow {
    good(
        "
flow: test
inputs:
  n: int
  x: { type: float, default: 0.5 }
  go: bool?
  name: { type: text, default: nobody, help: who it is }
  mode: { enum: [fast, slow], default: fast }
  reference: file?
  reads: { type: list<file>, default: [] }
  numbers: { type: list<int>, default: [1, 2] }
  any: { type: json, optional: true }
  index: dir?
  samples: { type: \"list<{ id: text, n: int, r1: file, kind: enum<dna, rna>?, note: text? }>\", default: [] }
steps: { s: { run: echo } }
",
    )
}

/// Makes a directory with some files.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.fq", "b 'x' $(y).fq", "sub/c.fq", "index/one", "index/deep/two"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    dir
}

fn bind(dir: &Path, words: &[(&str, &str)], file: Option<(&str, &str)>) -> String {
    let replace = |word: &str| word.replace("DIR", &dir.display().to_string());
    let words = words.iter().map(|(name, word)| ((*name).to_owned(), replace(word))).collect();
    let file = file.map(|(name, text)| {
        fs::write(dir.join(name), text).unwrap();
        dir.join(name)
    });
    match flow().bind(&GivenInputs { words, file }) {
        Ok(values) => {
            let lines: Vec<_> = values.iter().map(|(name, value)| format!("{name} = {}\n", value.to_json())).collect();
            lines.concat().replace(&format!("{}/", dir.display()), "")
        }
        Err(problems) => shown(dir, &problems),
    }
}

fn check(words: &[(&str, &str)], file: Option<(&str, &str)>, expected: Expect) {
    let dir = files();
    expected.assert_eq(&bind(dir.path(), words, file));
}

#[test]
fn words_become_values_and_the_rest_has_defaults() {
    check(
        &[("n", "3")],
        None,
        expect![[r#"
        n = 3
        x = 0.5
        go = null
        name = "nobody"
        mode = "fast"
        reference = null
        reads = []
        numbers = [1,2]
        any = null
        index = null
        samples = []
    "#]],
    );
    check(
        &[
            ("n", "-7"),
            ("x", "1e3"),
            ("go", "true"),
            ("name", "[x] 'y' @z"),
            ("mode", "slow"),
            ("reference", "DIR/a.fq"),
            ("reads", "DIR/*.fq"),
            ("reads", "DIR/sub/c.fq"),
            ("numbers", "3"),
            ("numbers", "4"),
            ("any", "{\"a\": [1, null]}"),
            ("index", "DIR/index"),
        ],
        None,
        expect![[r#"
            n = -7
            x = 1000.0
            go = true
            name = "[x] 'y' @z"
            mode = "slow"
            reference = "a.fq"
            reads = ["a.fq","b 'x' $(y).fq","sub/c.fq"]
            numbers = [3,4]
            any = {"a":[1,null]}
            index = "index"
            samples = []
        "#]],
    );
    check(
        &[("n", "1"), ("numbers", "[5, 6]"), ("samples", "[]"), ("reads", "DIR/b 'x' $(y).fq")],
        None,
        expect![[r#"
        n = 1
        x = 0.5
        go = null
        name = "nobody"
        mode = "fast"
        reference = null
        reads = ["b 'x' $(y).fq"]
        numbers = [5,6]
        any = null
        index = null
        samples = []
    "#]],
    );
}

#[test]
fn a_word_may_name_a_file_that_holds_the_value() {
    let dir = files();
    fs::write(dir.path().join("numbers.json"), "[7, 8]").unwrap();
    fs::write(dir.path().join("name.txt"), "a long\ntext\n").unwrap();
    fs::write(dir.path().join("n"), "12\n").unwrap();
    let words = [("n", "@DIR/n"), ("numbers", "@DIR/numbers.json"), ("name", "@DIR/name.txt")];
    expect![[r#"
        n = 12
        x = 0.5
        go = null
        name = "a long\ntext\n"
        mode = "fast"
        reference = null
        reads = []
        numbers = [7,8]
        any = null
        index = null
        samples = []
    "#]]
    .assert_eq(&bind(dir.path(), &words, None));
}

#[test]
fn a_file_of_inputs_is_yaml_or_json_with_paths_relative_to_it_and_words_go_first() {
    let yaml = "n: 3\nreads: '*.fq'\nreference: sub/c.fq\nsamples:\n  - { id: a, n: 1, r1: a.fq }\n";
    check(
        &[("n", "4")],
        Some(("inputs.yaml", yaml)),
        expect![[r#"
        n = 4
        x = 0.5
        go = null
        name = "nobody"
        mode = "fast"
        reference = "sub/c.fq"
        reads = ["a.fq","b 'x' $(y).fq"]
        numbers = [1,2]
        any = null
        index = null
        samples = [{"id":"a","kind":null,"n":1,"note":null,"r1":"a.fq"}]
    "#]],
    );
    check(
        &[],
        Some(("inputs.json", "{\"n\": 3, \"any\": {\"a\": 1.5}, \"samples\": \"s.csv\"}")),
        expect![[r#"
        error[OF0207]: there is no file s.csv
    "#]],
    );
}

#[test]
fn a_sample_sheet_is_a_list_of_records() {
    let csv = "id,n,r1,kind,note\nheart,1,a.fq,dna,\"one, two\"\n# a comment\nliver,2,sub/c.fq,,\n";
    check(
        &[("n", "1")],
        Some(("samples.csv", csv)),
        expect![[r#"
        n = 1
        x = 0.5
        go = null
        name = "nobody"
        mode = "fast"
        reference = null
        reads = []
        numbers = [1,2]
        any = null
        index = null
        samples = [{"id":"heart","kind":"dna","n":1,"note":"one, two","r1":"a.fq"},{"id":"liver","kind":null,"n":2,"note":null,"r1":"sub/c.fq"}]
    "#]],
    );
    let tsv = "r1\tid\tn\na.fq\theart\t1\n";
    check(
        &[("n", "1")],
        Some(("samples.tsv", tsv)),
        expect![[r#"
        n = 1
        x = 0.5
        go = null
        name = "nobody"
        mode = "fast"
        reference = null
        reads = []
        numbers = [1,2]
        any = null
        index = null
        samples = [{"id":"heart","kind":null,"n":1,"note":null,"r1":"a.fq"}]
    "#]],
    );
    let dir = files();
    fs::write(dir.path().join("s.json"), "[{\"id\": \"x\", \"n\": 1, \"r1\": \"a.fq\"}]").unwrap();
    expect![[r#"
        n = 1
        x = 0.5
        go = null
        name = "nobody"
        mode = "fast"
        reference = null
        reads = []
        numbers = [1,2]
        any = null
        index = null
        samples = [{"id":"x","kind":null,"n":1,"note":null,"r1":"a.fq"}]
    "#]]
    .assert_eq(&bind(dir.path(), &[("n", "1"), ("samples", "DIR/s.json")], None));
}

#[test]
fn wrong_words_are_all_said() {
    check(
        &[
            ("nn", "3"),
            ("x", "many"),
            ("go", "yes"),
            ("mode", "medium"),
            ("mode2", "x"),
            ("reference", "DIR/none.fq"),
            ("reads", "DIR/*.bam"),
            ("numbers", "3"),
            ("numbers", "four"),
            ("any", "{a: "),
            ("index", "DIR/a.fq"),
            ("name", "a"),
            ("name", "b"),
        ],
        None,
        expect![[r#"
            error[OF0201]: the flow has no input `nn`
            hint: did you mean `n`?

            error[OF0203]: input `x` must be float, but `many` is given

            error[OF0203]: input `go` must be bool, but `yes` is given
            hint: `true` or `false`

            error[OF0206]: input `mode` cannot be `medium`
            hint: it is one of `fast`, `slow`

            error[OF0201]: the flow has no input `mode2`
            hint: did you mean `mode`?

            error[OF0204]: input `reference`: the file `none.fq` is not there

            error[OF0205]: input `reads`: no file matches `*.bam`

            error[OF0203]: input `numbers` must be int, but `four` is given

            error[OF0204]: input `index`: the directory `a.fq` is not a directory

            error[OF0211]: input `name` is given 2 times
            hint: only a list takes several

            error[OF0202]: the input `n` is missing: it is int
            hint: --input n=1

            error[OF0101]: this is not YAML: unclosed bracket '{'
              --> input `any`:1:1
               |  {a:
               |  ^
            hint: every `{` and `[` needs its end
        "#]],
    );
}

#[test]
fn wrong_files_of_inputs_are_said_with_their_places() {
    check(
        &[],
        Some((
            "inputs.yaml",
            "n: three\nnumbers: [1, b]\nnames: 3\nsamples:\n  - { id: a, n: 1, r2: a.fq }\nmode: [a]\n",
        )),
        expect![[r#"
            error[OF0203]: input `n` must be int, but `three` is given
              --> inputs.yaml:1:4
               |  n: three
               |     ^^^^^

            error[OF0203]: element 1 of input `numbers` must be int, but `b` is given
              --> inputs.yaml:2:14
               |  numbers: [1, b]
               |               ^

            error[OF0201]: the flow has no input `names`
              --> inputs.yaml:3:1
               |  names: 3
               |  ^^^^^
            hint: did you mean `name`?

            error[OF0203]: element 0 of input `samples` has no `r1`, which is file
              --> inputs.yaml:5:5
               |  - { id: a, n: 1, r2: a.fq }
               |    ^^^^^^^^^^^^^^^^^^^^^^^^^

            error[OF0203]: element 0 of input `samples` has no field `r2`
              --> inputs.yaml:5:20
               |  - { id: a, n: 1, r2: a.fq }
               |                   ^^
            hint: did you mean `r1`?

            error[OF0203]: input `mode` must be text, but a list is given
              --> inputs.yaml:6:7
               |  mode: [a]
               |        ^^^
        "#]],
    );
    check(
        &[("n", "1")],
        Some(("inputs.yaml", "- 1\n")),
        expect![[r#"
            error[OF0207]: inputs.yaml holds a list
              --> inputs.yaml:1:1
               |  - 1
               |  ^^^
            hint: it holds a map: the names of inputs and their values
        "#]],
    );
    check(
        &[("n", "1")],
        Some(("inputs.yaml", "n: {\n")),
        expect![[r#"
            error[OF0101]: this is not YAML: unclosed bracket '{'
              --> inputs.yaml:1:4
               |  n: {
               |     ^
            hint: every `{` and `[` needs its end
        "#]],
    );
    let dir = files();
    let given = GivenInputs { words: vec![("n".into(), "1".into())], file: Some(dir.path().join("none.yaml")) };
    expect![[r#"
        error[OF0207]: there is no file none.yaml
    "#]]
    .assert_eq(&shown(dir.path(), &flow().bind(&given).unwrap_err()));
}

#[test]
fn wrong_sheets_are_said_with_row_and_column() {
    let csv = "id,n,r1,kind,nots\nheart,one,a.fq,dna,x\nliver,2,none.fq,plant,\nlung,3\n";
    check(
        &[("n", "1")],
        Some(("samples.csv", csv)),
        expect![[r#"
            error[OF0208]: input `samples` has no column `nots`
              --> samples.csv:1:1
               |  id,n,r1,kind,nots
               |  ^
            hint: did you mean `note`?

            error[OF0210]: row 1, column `n` must be int, but `one` is given
              --> samples.csv:2:1
               |  heart,one,a.fq,dna,x
               |  ^

            error[OF0204]: row 2, column `r1`: the file `none.fq` is not there
              --> samples.csv:3:1
               |  liver,2,none.fq,plant,
               |  ^
            hint: paths here are relative to DIR

            error[OF0206]: row 2, column `kind` cannot be `plant`
              --> samples.csv:3:1
               |  liver,2,none.fq,plant,
               |  ^
            hint: it is one of `dna`, `rna`

            error[OF0212]: row 3 has 2 cells, but there are 5 columns
              --> samples.csv:4:1
               |  lung,3
               |  ^
            hint: a cell with a comma in it must be quoted
        "#]],
    );
    check(
        &[("n", "1")],
        Some(("samples.csv", "id,r1\nheart,a.fq\n")),
        expect![[r#"
            error[OF0209]: the sheet has no column `n`, which is int
              --> samples.csv:1:1
               |  id,r1
               |  ^
            hint: there is `id`, `r1`
        "#]],
    );
}

#[test]
fn lines_of_a_sheet_are_counted_with_its_comments() {
    let csv = "# made by hand\n\nid,n,r1\n# heart first\nheart,1,a.fq\n\n# then liver\nliver,two,a.fq\n";
    check(
        &[("n", "1")],
        Some(("samples.csv", csv)),
        expect![[r#"
            error[OF0210]: row 2, column `n` must be int, but `two` is given
              --> samples.csv:8:1
               |  liver,two,a.fq
               |  ^
        "#]],
    );
    let csv = "# made by hand\nid,n,r2\nheart,1,a.fq\n";
    check(
        &[("n", "1")],
        Some(("samples.csv", csv)),
        expect![[r#"
            error[OF0208]: input `samples` has no column `r2`
              --> samples.csv:2:1
               |  id,n,r2
               |  ^
            hint: did you mean `r1`?

            error[OF0209]: the sheet has no column `r1`, which is file
              --> samples.csv:2:1
               |  id,n,r2
               |  ^
            hint: did you mean `r2`?
        "#]],
    );
}

#[test]
fn defaults_are_relative_to_the_flow_and_must_be_there() {
    let dir = files();
    let text = "flow: test\ninputs:\n  f: { type: file, default: a.fq }\n  all: { type: list<file>, default: 'sub/*' }\n  d: { type: dir, default: index }\nsteps: { s: { run: echo } }\n";
    fs::write(dir.path().join("flow.yaml"), text).unwrap();
    let flow = super::support::load_in(dir.path(), "flow.yaml").unwrap();
    let bound = flow.bind(&GivenInputs::default()).unwrap();
    let names: Vec<_> = bound.iter().map(|(_, value)| value.files().len()).collect();
    assert_eq!(names, [1, 1, 2]);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    fs::remove_file(dir.path().join("a.fq")).unwrap();
    expect![[r#"
        error[OF0204]: the default of `f`: there is no file a.fq

        error[OF0204]: the default of `d`: index cannot be read: No such file or directory (os error 2)
    "#]]
    .assert_eq(&shown(dir.path(), &flow.bind(&GivenInputs::default()).unwrap_err()));
}
