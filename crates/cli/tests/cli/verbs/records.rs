//! Records of runs in a store: disk usage, lineage, differences; and runs as files.

use super::{ran, support::Bed, three};
use serde_json::Value;

fn done(keep: &str) -> Bed {
    let bed = Bed::new();
    three(&bed, keep);
    bed.write("ok", "");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(0);
    ran(&bed);
    bed
}

#[test]
fn every_byte_of_a_store_is_somebodys() {
    let bed = Bed::new();
    three(&bed, "keep: 1h\n");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(1);
    let large = "l".repeat(300_000);
    bed.write("large.txt", &large);
    bed.write("copy.yaml", &super::support::copy_flow("copy", ""));
    bed.run(&["run", "copy.yaml", "-i", "text=large.txt"]).ends(0);
    let all = bed.run(&["du", "--json"]).ends(0).json();
    let of = |key: &str| -> Value {
        all["runs"].as_array().into_iter().flatten().find(|run| run["key"] == key).cloned().unwrap_or_default()
    };
    assert!(all["total"]["bytes"].as_u64() > Some(300_000), "{all}");
    assert!(of("copy")["bytes"].as_u64() > Some(300_000), "{all}");
    let output = of("copy")["parts"][0].clone();
    assert_eq!((&output["kind"], &output["of"]), (&"output".into(), &"copy".into()), "{all}");
    assert!(output["until_ms"].is_u64(), "{all}");
    let one = bed.run(&["du", "sum", "--json"]).ends(0).json();
    assert_eq!(one["runs"].as_array().map(Vec::len), Some(1), "{one}");
    let kinds: Vec<_> = one["runs"][0]["parts"].as_array().into_iter().flatten().map(|part| &part["kind"]).collect();
    assert!(kinds.contains(&&Value::from("program")) && kinds.contains(&&Value::from("rows")), "{one}");
    assert!(bed.run(&["du"]).ends(0).stdout.contains("copy"));
    assert!(bed.run(&["du", "copy"]).ends(0).stdout.contains("output copy"));
}

#[test]
fn a_part_of_a_run_is_listed_once_and_all_of_them_are_the_total() {
    let bed = done("keep: 1h\n");
    // Outputs of earlier plans are still there.
    for b in ["3", "4"] {
        bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", &format!("b={b}")]).ends(0);
    }
    let run = bed.run(&["du", "sum", "--json"]).ends(0).json()["runs"][0].take();
    let parts = run["parts"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<_> = parts.iter().map(|part| format!("{} {}", part["kind"], part["of"])).collect();
    let many = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), many, "{run}");
    assert!(
        names.contains(&String::from("\"output\" \"z\"")) && names.contains(&String::from("\"program\" null")),
        "{run}"
    );
    let bytes = |value: &Value| value.as_u64().unwrap_or_default();
    assert_eq!(bytes(&run["bytes"]), parts.iter().map(|part| bytes(&part["bytes"])).sum::<u64>(), "{run}");
    assert_eq!(bytes(&run["total_bytes"]), bytes(&run["bytes"]) + bytes(&run["directory_bytes"]), "{run}");
    let text = bed.run(&["du", "sum"]).ends(0).stdout;
    assert_eq!(text.matches("  program  ").count(), 1, "{text}");
}

#[test]
fn a_digest_is_called_what_it_is() {
    let bed = Bed::new();
    bed.write("in.txt", "some text");
    bed.write("copy.yaml", &super::support::copy_flow("copy", ""));
    bed.run(&["run", "copy.yaml", "-i", "text=in.txt"]).ends(0);
    let digest = &blake3::hash(b"some text").to_hex()[..16];
    let text = bed.run(&["lineage", "in.txt"]).ends(0).stdout;
    assert!(text.starts_with(&format!("in.txt  blake3 {digest}\n")), "{text}");
    assert!(text.contains(&format!("input text, blake3 {digest}\n")) && !text.contains("value "), "{text}");
    // Found by its digest only, the file has no name; and the stored value has another digest.
    let text = bed.run(&["lineage", digest]).ends(0).stdout;
    assert!(text.contains("input text, value ") && !text.contains(&format!("value {digest}")), "{text}");
}

#[test]
fn a_result_is_traced_back_to_inputs_and_code() {
    let bed = done("");
    let said = bed.run(&["lineage", "results/z.txt", "--json"]).ends(0).json();
    let found = &said["found"][0];
    assert_eq!((&found["is"], &found["key"]), (&"output z".into(), &"sum".into()), "{said}");
    let steps: Vec<_> = found["steps"].as_array().into_iter().flatten().map(|step| &step["step"]).collect();
    assert_eq!(steps, ["x", "y", "z"], "{said}");
    assert!(found["inputs"]["a"].is_string() && found["steps"][0]["code"].is_string(), "{said}");
    let digest = said["digest"].as_str().unwrap_or_default().to_owned();
    let by_digest = bed.run(&["lineage", &digest[..12], "--json"]).ends(0).json();
    assert_eq!(by_digest["found"][0]["is"], "output z", "{by_digest}");
    assert!(bed.run(&["lineage", "results/z.txt"]).ends(0).stdout.contains("input a"));
    bed.write("foreign.txt", "foreign");
    bed.run(&["lineage", "foreign.txt"]).ends(1);
    bed.run(&["lineage", "no/such/file"]).ends(2);
}

#[test]
fn an_input_file_and_what_is_kept_on_the_way_are_found_too() {
    let bed = done("keep: 1h\n");
    bed.write("in.txt", "some text");
    bed.write("copy.yaml", &super::support::copy_flow("copy", ""));
    bed.run(&["run", "copy.yaml", "-i", "text=in.txt"]).ends(0);
    let said = bed.run(&["lineage", "in.txt", "--json"]).ends(0).json();
    let is: Vec<_> = said["found"].as_array().into_iter().flatten().map(|found| &found["is"]).collect();
    assert_eq!(is, ["output copy", "input text"], "{said}");
}

#[test]
fn lineage_compares_digests_and_reads_no_stored_value() {
    let bed = Bed::new();
    let run = "head -c 300000 /dev/zero | base64 -w0";
    bed.write(
        "long.yaml",
        &format!("flow: long\nsteps:\n  a: {{ run: \"{run}\", out: {{ said: text }} }}\noutputs: {{ said: a.said }}\n"),
    );
    bed.run(&["run", "long.yaml"]).ends(0);
    let mut look = vec![bed.path(".onceflow/blobs")];
    let mut removed = 0;
    while let Some(directory) = look.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let data = entry.metadata().unwrap();
            if data.is_dir() {
                look.push(entry.path());
            } else if data.len() >= 300_000 {
                std::fs::remove_file(entry.path()).unwrap();
                removed += 1;
            }
        }
    }
    assert_eq!(removed, 1, "the output is an object of its own");
    bed.write("other.txt", "other");
    let ended = bed.run(&["lineage", "other.txt"]).ends(1);
    assert!(ended.stderr.contains("OF0452"), "{}", ended.stderr);
}

/// A flow that transforms every text of a list, and then every result; `end` is the end of its last step.
fn texts(bed: &Bed, keep: &str, end: &str) {
    for (name, text) in [("a.txt", "one"), ("b.txt", "two")] {
        bed.write(name, text);
    }
    bed.write(
        "texts.yaml",
        &format!(
            "flow: texts\n{keep}inputs: {{ texts: list<file> }}\nsteps:\n  up:\n    each: text in inputs.texts\n    run: tr a-z A-Z < ${{{{ text }}}} > ${{{{ out.up }}}}\n    \
             out: {{ up: {{ file: '${{{{ text.stem }}}}.up' }} }}\n  twice:\n    each: one in up.up\n    run: cat ${{{{ one }}}} ${{{{ one }}}} > ${{{{ out.two }}}}\n    \
             out: {{ two: {{ file: '${{{{ one.stem }}}}.two' }} }}\n  end:\n    run: cat ${{{{ up.up }}}} ${{{{ twice.two }}}}{end}\n    out: {{ said: text }}\n\
             outputs: {{ all: twice.two, said: end.said }}\n"
        ),
    );
}

#[test]
fn a_file_of_a_list_is_traced_back_through_its_element_to_inputs_and_code() {
    let bed = Bed::new();
    texts(&bed, "keep: 1h\n", "");
    bed.run(&["run", "texts.yaml", "-i", "texts=*.txt"]).ends(0);
    // An element of an output is traced through the element it was made from, and the one that was made from.
    let said = bed.run(&["lineage", "results/all/b.two"]).ends(0).stdout;
    let told: Vec<_> = said.lines().skip(1).map(|line| line.split(", ").next().unwrap_or_default()).collect();
    assert!(told[0].starts_with("is output all[1] of run texts ("), "{said}");
    assert_eq!(told[1..3], ["  from twice[1]:two", "    from up[1]:up"], "{said}");
    assert!(told[3].starts_with("      input texts[1] of value "), "{said}");
    let said = bed.run(&["lineage", "results/all/b.two", "--json"]).ends(0).json()["found"][0].take();
    assert_eq!((&said["is"], &said["from"]["step"]), (&"output all[1]".into(), &"twice[1]".into()), "{said}");
    let steps: Vec<_> = said["steps"].as_array().into_iter().flatten().map(|step| &step["step"]).collect();
    assert_eq!(steps, ["up[1]", "twice[1]"], "{said}");
    assert_eq!(said["steps"][0]["inputs"][0]["from"]["input"], "texts[1]", "{said}");
    assert_eq!(said["steps"][1]["inputs"][0]["from"]["step"], "up[1]", "{said}");
    // An element that was kept on the way, because another step needs the list.
    bed.write("mine.up", "TWO");
    let said = bed.run(&["lineage", "mine.up", "--json"]).ends(0).json()["found"][0].take();
    assert_eq!((&said["is"], &said["from"]["port"]), (&"up of step up[1]".into(), &"up".into()), "{said}");
    // An element of an input is found as long as the list can be read as it was; of two with the same content, the one
    // with this name.
    bed.write("b.txt", "one");
    bed.run(&["run", "texts.yaml", "-i", "texts=*.txt", "--key", "same"]).ends(0);
    let said = bed.run(&["lineage", "b.txt", "--json"]).ends(0).json();
    let found: Vec<_> = said["found"].as_array().into_iter().flatten().map(|it| (&it["is"], &it["key"])).collect();
    assert_eq!(found, [(&"input texts[1]".into(), &"same".into())], "{said}");
    assert_eq!(said["found"][0]["from"]["input"], "texts[1]", "{said}");
}

#[test]
fn a_file_of_a_list_that_an_unfinished_run_was_given_is_found_in_the_store() {
    let bed = Bed::new();
    texts(&bed, "", "; exit 1");
    bed.run(&["run", "texts.yaml", "-i", "texts=*.txt"]).ends(1);
    bed.write("b.txt", "other");
    let digest = blake3::hash(b"two").to_hex();
    let said = bed.run(&["lineage", &digest, "--json"]).ends(0).json();
    assert_eq!(said["found"][0]["is"], "input texts[1]", "{said}");
}

#[test]
fn two_runs_differ_in_what_was_changed_and_nothing_else() {
    let bed = done("");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2", "--key", "same"]).ends(0);
    bed.run(&["diff", "sum", "same"]).ends(0);
    let text = bed.read("sum.yaml").replace("echo y $", "echo Y $");
    bed.write("sum.yaml", &text);
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=3", "--key", "other"]).ends(0);
    let said = bed.run(&["diff", "sum", "other", "--json"]).ends(1).json();
    let told: Vec<_> = said["differences"].as_array().into_iter().flatten().collect();
    let told: Vec<_> = told.iter().map(|it| format!("{} {} {}", it["of"], it["name"], it["how"])).collect();
    let expected = ["input b changed", "step y code-changed", "output z changed"];
    assert_eq!(told.iter().map(|told| told.replace('"', "")).collect::<Vec<_>>(), expected, "{said}");
    assert_eq!(
        (&said["differences"][0]["from_value"], &said["differences"][0]["to_value"]),
        (&"2".into(), &"3".into())
    );
    let text = bed.run(&["diff", "sum", "-"]).ends(1).stdout;
    assert!(
        text.contains("~ step y: code changed") && text.starts_with("~ input b: changed from \"2\" to \"3\"\n"),
        "{text}"
    );
}

#[test]
fn outputs_that_differ_are_shown_as_what_they_are() {
    let bed = Bed::new();
    bed.write(
        "n.yaml",
        "flow: n\ninputs: { x: int }\nsteps:\n  n: { run: \"echo ${{ inputs.x }}\", out: { n: int } }\noutputs: { n: n.n }\n",
    );
    bed.run(&["run", "n.yaml", "-i", "x=55", "--key", "one"]).ends(0);
    bed.run(&["run", "n.yaml", "-i", "x=56", "--key", "two"]).ends(0);
    let said = bed.run(&["diff", "one", "two", "--json"]).ends(1).json();
    let output = said["differences"].as_array().and_then(|all| all.iter().find(|it| it["of"] == "output")).cloned();
    let output = output.unwrap_or_default();
    assert_eq!((output["from_value"].as_i64(), output["to_value"].as_i64()), (Some(55), Some(56)), "{said}");
}

#[test]
fn short_known_differences_of_values_are_shown() {
    let bed = done("");
    let long = format!("b={}", "long ".repeat(20));
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", &long, "--key", "long"]).ends(0);
    let text = bed.run(&["diff", "sum", "long"]).ends(1).stdout;
    let line = text.lines().next().unwrap_or_default().to_owned();
    let to = line.strip_prefix("~ input b: changed from \"2\" to ").unwrap_or_else(|| panic!("{text}"));
    assert!(to.len() == 16 && to.chars().all(|letter| letter.is_ascii_hexdigit()), "{text}");
    // The metadata beside the run may say anything: it is not trusted.
    let id = bed.run(&["show", "sum", "--json"]).ends(0).json()["id"].as_str().expect("an id").to_owned();
    bed.write(&format!(".onceflow/runs/{id}/inputs.json"), r#"{"a":"1","b":"20"}"#);
    assert!(!bed.run(&["diff", "sum", "long"]).ends(1).stdout.contains('"'));
    // Of a file, the metadata has the name, which may be the same.
    bed.write("copy.yaml", &super::support::copy_flow("copy", ""));
    for (content, key) in [("one", "one"), ("two", "two")] {
        bed.write("in.txt", content);
        bed.run(&["run", "copy.yaml", "-i", "text=in.txt", "--key", key]).ends(0);
    }
    assert!(!bed.run(&["diff", "one", "two"]).ends(1).stdout.contains("in.txt"));
}

#[test]
fn a_run_moves_to_another_store_as_one_file() {
    for keep in ["", "keep: 1h\n"] {
        let bed = done(keep);
        bed.run(&["export", "sum", "sum.run"]).ends(0);
        bed.run(&["export", "sum", "sum.run"]).ends(1);
        let other = |args: &[&str]| bed.run(&[args, &["--store", "other"]].concat());
        other(&["import", "sum.run", "--dry-run"]).ends(0);
        let said = other(&["import", "sum.run", "--json"]).ends(0).json();
        assert_eq!((&said["key"], &said["imported"]), (&"sum".into(), &true.into()), "{said}");
        other(&["import", "sum.run"]).ends(1);
        other(&["import", "sum.run", "--replace"]).ends(0);
        other(&["import", "sum.run", "--key", "second"]).ends(0);
        // The imported run is the same run: nothing runs, its results are written, and it can be inspected and forked.
        let said = other(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2", "--out", "there"]).ends(0);
        assert_eq!((ran(&bed).as_str(), said.stdout.trim()), ("", r#"{"z":"there/z.txt","x":"x 1"}"#));
        assert_eq!(bed.read("there/z.txt"), bed.read("results/z.txt"));
        assert!(other(&["show", "sum"]).ends(0).stdout.contains("input    a"));
        assert_eq!(other(&["lineage", "there/z.txt", "--json"]).ends(0).json()["found"][0]["is"], "output z");
        other(&["fork", "second", "--key", "f", "-i", "b=5"]).ends(0);
        assert_eq!(ran(&bed), "y z");
        other(&["run", "sum.yaml", "-i", "a=1", "-i", "b=6"]).ends(0);
        assert_eq!(ran(&bed), if keep.is_empty() { "x y z" } else { "y z" });
        other(&["reclaim"]).ends(0);
        other(&["fsck"]).ends(0);
    }
}

#[test]
fn a_file_that_was_changed_on_the_way_is_refused_and_leaves_nothing() {
    let bed = done("keep: 1h\n");
    bed.run(&["export", "sum", "sum.run"]).ends(0);
    let whole = std::fs::read(bed.path("sum.run")).expect("it is there");
    let cases = [0, 3, 20, 60, 400, whole.len() - 1];
    for at in cases {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(bed.path("bad.run"), &changed).expect("a file");
        let said = bed.run(&["import", "bad.run", "--store", "other"]).ends(1);
        assert!(said.stderr.contains("OF0453"), "byte {at}: {}", said.all());
    }
    for len in [0, 10, 50, whole.len() / 2, whole.len() - 1] {
        std::fs::write(bed.path("bad.run"), &whole[..len]).expect("a file");
        let said = bed.run(&["import", "bad.run", "--store", "other"]).ends(1);
        assert!(said.stderr.contains("OF0453"), "{len} bytes: {}", said.all());
    }
    std::fs::write(bed.path("bad.run"), [&whole[..], b"more"].concat()).expect("a file");
    bed.run(&["import", "bad.run", "--store", "other"]).ends(1);
    let ls = bed.run(&["ls", "--json", "--store", "other"]).ends(0).json();
    assert_eq!(ls, serde_json::json!([]));
    bed.run(&["fsck", "--store", "other"]).ends(0);
}

#[test]
fn a_run_that_has_not_ended_is_not_exported() {
    let bed = Bed::new();
    three(&bed, "");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(1);
    let said = bed.run(&["export", "sum", "sum.run"]).ends(1);
    assert!(said.stderr.contains("OF0454") && !bed.path("sum.run").exists(), "{}", said.all());
}
