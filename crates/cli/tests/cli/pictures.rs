//! Pictures and reports: their content, and that nothing in a flow or a key can break them.

use crate::support;

use expect_test::expect;
use std::process::Command;
use support::Bed;

const FLOW: &str = r#"
flow: pipeline
inputs: { samples: list<text>, strict: { type: bool, default: false } }
steps:
  index: { run: echo idx, out: { idx: text } }
  sample:
    each: s in inputs.samples
    steps:
      trim: { run: "echo ${{ s }}", out: { t: text } }
      align: { run: "echo ${{ trim.t }} ${{ index.idx }}", out: { a: text }, resources: { memory: 20MB } }
    out: { a: align.a }
  strict_check: { when: inputs.strict, run: "echo ${{ sample.a }}", out: { x: text } }
  count: { each: s in inputs.samples, run: "echo -n ${{ s }} | wc -c", out: { n: int } }
  refine:
    loop: { carry: { g: "10" }, while: out.g > 1, max: 5 }
    steps: { half: { expr: { g: g / 2 } } }
    out: { g: half.g }
  flaky:
    run: "echo '<b>no & no</b>'; test ${{ attempt }} -gt 1; echo ${{ sample.a }}"
    out: { f: text }
    retry: { attempts: 2, backoff: 1ms }
  report: { run: "echo ${{ flaky.f }} ${{ refine.g }} ${{ count.n }}", out: { r: text } }
outputs: { report: report.r, strict: strict_check.x, total: "size(inputs.samples)" }
"#;

/// Fails unless a file is well-formed XML.
fn is_xml(bed: &Bed, name: &str) {
    let check = "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])";
    let said = Command::new("python3").args(["-c", check]).arg(bed.path(name)).output().expect("python3");
    assert!(said.status.success(), "{name}: {}", String::from_utf8_lossy(&said.stderr));
}

/// Fails unless every tag of an HTML file is closed, and nothing is loaded from elsewhere.
fn is_html(bed: &Bed, name: &str) {
    let check = r#"
import sys, html.parser
class P(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(); self.open = []
    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("src", "href", "srcset", "action"), (tag, name, value)
        if tag not in ("meta", "input"): self.open.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())
text = open(sys.argv[1]).read()
p = P(); p.feed(text); p.close(); assert not p.open, p.open
assert "http://" not in text.replace("http://www.w3.org", "") and "@import" not in text and "url(http" not in text
"#;
    let said = Command::new("python3").args(["-c", check]).arg(bed.path(name)).output().expect("python3");
    assert!(said.status.success(), "{name}: {}", String::from_utf8_lossy(&said.stderr));
}

fn ran(key: &str) -> Bed {
    let bed = Bed::new();
    bed.write("flow.yaml", FLOW);
    bed.run(&["run", "flow.yaml", "-i", r#"samples=["a","b","c"]"#, "--key", key, "-j", "1"]).ends(0);
    bed
}

#[test]
fn a_flow_is_a_tree_of_its_steps_with_what_they_read() {
    let bed = Bed::new();
    bed.write("flow.yaml", FLOW);
    bed.run(&["graph", "flow.yaml"]).expect(expect![[r#"
        -- stdout
        pipeline
        ├─ index  run
        ├─ sample  each
        │  ├─ trim  run  ← inputs.samples
        │  └─ align  run  ← index, sample/trim
        ├─ strict_check  run  ← inputs.strict, sample/align
        ├─ count  each run  ← inputs.samples
        ├─ refine  loop
        │  └─ half  expr
        ├─ flaky  run  ← sample/align
        └─ report  run  ← count, refine/half, flaky
        => report  ← report
        => strict  ← strict_check
        => total  ← inputs.samples
        -- stderr
        next: onceflow run flow.yaml
        -- exit 0
    "#]]);
    assert!(!bed.path(".onceflow").exists(), "nothing is made");
}

#[test]
fn a_step_of_an_each_that_reads_no_element_is_drawn_after_the_list() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\nsteps:\n  l: { run: \"echo '[1]'\", out: { v: list<int> } }\n  other: { run: echo o, out: { o: text } }\n  \
         plain: { each: x in l.v, run: echo hi, out: { t: text } }\n  \
         reads: { each: x in l.v, run: 'echo ${{ other.o }}', out: { t: text } }\n  \
         inner:\n    each: x in l.v\n    steps:\n      a: { run: echo a, out: { t: text } }\n      \
         b: { run: 'echo ${{ a.t }}', out: { t: text } }\n    out: { t: b.t }\n\
         outputs: { p: plain.t, r: reads.t, i: inner.t }\n",
    );
    bed.run(&["graph", "f.yaml"]).expect(expect![[r#"
        -- stdout
        f
        ├─ l  run
        ├─ other  run
        ├─ plain  each run  ← l
        ├─ reads  each run  ← l, other
        └─ inner  each
           ├─ a  run  ← l
           └─ b  run  ← inner/a
        => p  ← plain
        => r  ← reads
        => i  ← inner/b
        -- stderr
        next: onceflow run f.yaml
        -- exit 0
    "#]]);
}

#[test]
fn a_flow_in_the_languages_of_others() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: small\ninputs: { n: int }\nsteps:\n  a: { run: echo 1, out: { x: list<text> } }\n  b:\n    each: y in a.x\n    steps: { c: { run: \"echo ${{ y }} ${{ inputs.n }}\" } }\n    out: { d: c.done }\noutputs: { x: a.x }\n",
    );
    bed.run(&["graph", "f.yaml", "--format", "dot"]).expect(expect![[r##"
        -- stdout
        digraph "small" {
          node [shape=box, style="rounded,filled", fillcolor="#eef2f7", fontname="sans-serif"];
          "inputs.n" [label="n", shape=ellipse];
          "a" [label="a\nrun"];
          "outputs.x" [label="x", shape=ellipse];
          subgraph "cluster_b" {
            label="each b"; style="rounded,dashed";
            "b/c" [label="c\nrun"];
          }
          "inputs.n" -> "b/c";
          "a" -> "b/c";
          "a" -> "outputs.x";
        }
        -- stderr
        next: onceflow run f.yaml
        -- exit 0
    "##]]);
    bed.run(&["graph", "f.yaml", "--format", "mermaid", "-q"]).expect(expect![[r#"
        -- stdout
        ---
        title: "small"
        ---
        flowchart TD
          b0(["n"])
          b1["a<br/>run"]
          b3(["x"])
          subgraph g0 ["each b"]
            b2["c<br/>run"]
          end
          b0 --> b2
          b1 --> b2
          b1 --> b3
        -- exit 0
    "#]]);
    let data = bed.run(&["graph", "f.yaml", "--json"]).ends(0).json();
    assert_eq!(data["groups"][0]["id"], "b");
}

#[test]
fn a_run_shows_what_became_of_every_step() {
    let bed = ran("first");
    let data = bed.run(&["graph", "--json"]).ends(0).json();
    let state = |id: &str| {
        let boxes = data["boxes"].as_array().expect("boxes");
        let one = boxes.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{id}: {data}"));
        format!(
            "{} {} of {}",
            one["state"]["state"].as_str().unwrap_or("none"),
            one["state"]["done"],
            one["state"]["of"]
        )
    };
    for (id, told) in [
        ("index", "done 1 of null"),
        ("sample/trim", "done 3 of 3"),
        ("sample/align", "done 3 of 3"),
        ("strict_check", "skipped 0 of null"),
        ("count", "done 3 of 3"),
        ("refine/half", "done 3 of null"),
        ("flaky", "done 1 of null"),
        ("report", "done 1 of null"),
    ] {
        assert_eq!(state(id), told, "{id}");
    }
    for (name, begins) in
        [("g.svg", "<svg "), ("g.dot", "digraph "), ("g.mmd", "---\ntitle: "), ("g.txt", "first (pipeline): done\n")]
    {
        bed.run(&["graph", "first", "-o", name]).ends(0);
        assert!(bed.read(name).starts_with(begins), "{name}");
    }
    is_xml(&bed, "g.svg");
    assert!(!bed.read("g.txt").contains('\u{1b}'), "no colours in a file");
}

#[test]
fn a_run_that_failed_or_was_stopped_is_shown_as_it_stands() {
    let bed = Bed::new();
    bed.write("f.yaml", "flow: f\nsteps:\n  a: { run: echo 1, out: { x: text } }\n  b: { run: \"echo ${{ a.x }} '</pre><script>alert(1)</script>' >&2; exit 3\", out: { y: text } }\n  c: { run: \"echo ${{ b.y }}\", out: { z: text } }\noutputs: { z: c.z }\n");
    bed.run(&["run", "f.yaml"]).ends(1);
    let shown = bed.run(&["graph"]).ends(0).stdout;
    let states: Vec<_> = shown.lines().filter_map(|line| line.split("  ").nth(2)).collect();
    assert!(
        states[0].starts_with("done") && states[1].starts_with("failed") && states[2].starts_with("pending"),
        "{shown}"
    );
    bed.run(&["report", "-o", "r.html"]).ends(0);
    is_html(&bed, "r.html");
    let report = bed.read("r.html");
    assert!(report.contains("&lt;/pre&gt;&lt;script&gt;alert(1)"), "the log is there, as text");
    assert!(report.contains("<span class=\"badge failed\">failed</span>"));
}

#[test]
fn a_timeline_has_every_attempt() {
    let bed = ran("t");
    bed.run(&["timeline", "-o", "t.svg"]).ends(0);
    is_xml(&bed, "t.svg");
    let data = bed.run(&["timeline", "t", "--json"]).ends(0).json();
    let attempts = data["attempts"].as_array().expect("attempts");
    let of = |step: &str| {
        let those = attempts.iter().filter(|one| one["step"] == step);
        those.map(|one| format!("{} {}", one["attempt"], one["how"].as_str().unwrap_or_default())).collect::<Vec<_>>()
    };
    assert_eq!(of("flaky"), ["1 failed", "2 done"]);
    assert_eq!(of("sample[2]/trim"), ["1 done"]);
    let graph = bed.run(&["graph", "t"]).ends(0).stdout;
    std::fs::remove_dir_all(bed.path(".onceflow/runs")).expect("talk may be deleted");
    let again = bed.run(&["timeline", "t", "--json"]).ends(0).json();
    assert_eq!(again["attempts"], data["attempts"], "the store has the event log");
    assert_eq!(bed.run(&["graph", "t"]).ends(0).stdout, graph);
    bed.run(&["report", "t", "-o", "r.html"]).ends(0);
    is_html(&bed, "r.html");
}

#[test]
fn a_report_is_one_file_that_needs_nothing_and_no_key_breaks_it() {
    let key = "a<b>&\"'</title><script>x</script>";
    let bed = ran(key);
    bed.run(&["report"]).ends(0);
    let reports = std::fs::read_dir(bed.dir.path()).expect("a directory").flatten();
    let reports = reports.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let name = reports.into_iter().find(|name| name.starts_with("report-")).expect("a report");
    is_html(&bed, &name);
    let report = bed.read(&name);
    for part in [
        "id=\"graph\"",
        "id=\"timeline\"",
        "id=\"steps\"",
        "id=\"attempts\"",
        "id=\"outputs\"",
        "id=\"inputs\"",
        "prefers-color-scheme:dark",
    ] {
        assert!(report.contains(part), "{part}");
    }
    bed.run(&["graph", "-", "-o", "g.svg"]).ends(0);
    bed.run(&["timeline", "-", "-o", "t.svg"]).ends(0);
    is_xml(&bed, "g.svg");
    is_xml(&bed, "t.svg");
    let said = bed.run(&["report", "-o", "no/such/place.html"]).ends(2);
    assert!(said.stderr.starts_with("error[OF0440]: cannot write no/such/place.html: "), "{}", said.stderr);
}

#[test]
fn valid_steps_are_reused_and_the_report_says_why_the_rest_ran() {
    let bed = Bed::new();
    bed.write("f.yaml", "flow: f\nkeep: 1h\ninputs: { n: int }\nsteps:\n  a: { run: echo 1, out: { x: text } }\n  b: { run: \"echo ${{ a.x }} ${{ inputs.n }}\", out: { y: text } }\noutputs: { y: b.y }\n");
    bed.run(&["run", "f.yaml", "-i", "n=1"]).ends(0);
    bed.run(&["run", "f.yaml", "-i", "n=2"]).ends(0);
    let data = bed.run(&["graph", "--json"]).ends(0).json();
    let states: Vec<_> =
        data["boxes"].as_array().expect("boxes").iter().filter_map(|one| one["state"]["state"].as_str()).collect();
    assert_eq!(states, ["reused", "done"]);
    bed.run(&["report", "-o", "r.html"]).ends(0);
    is_html(&bed, "r.html");
    assert!(bed.read("r.html").contains("<td>input inputs.n changed</td>"), "{}", bed.read("r.html"));
}

#[test]
fn a_report_and_a_graph_tell_what_commands_used_of_the_machine_and_what_was_more_than_asked_for() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\nsteps:\n  \
         busy: { run: 'x=0; while ((x < 300000)); do ((x += 1)); done; echo $x', out: { n: int } }\n  \
         hungry: { run: 'x=$(head -c 200000000 /dev/zero | tr \"\\0\" x); echo ${#x}', resources: { memory: 100MB }, out: { n: int } }\n  \
         plain: { expr: 1 + 1 }\noutputs: { busy: busy.n, hungry: hungry.n, plain: plain.value }\n",
    );
    bed.run(&["run", "f.yaml"]).ends(0);
    let data = bed.run(&["graph", "-", "--json"]).ends(0).json();
    let of = |name: &str| {
        let boxes = data["boxes"].as_array().expect("boxes");
        boxes.iter().find(|one| one["id"] == name).expect("a box")["state"].clone()
    };
    assert!(of("busy")["cpu_ms"].as_u64().is_some_and(|ms| ms > 0), "{data:#}");
    assert!(of("hungry")["peak_bytes"].as_u64().is_some_and(|bytes| bytes > 200_000_000), "{data:#}");
    assert!(of("plain")["cpu_ms"].is_null(), "only processes are measured: {data:#}");
    bed.run(&["report", "-o", "r.html"]).ends(0);
    is_html(&bed, "r.html");
    let report = bed.read("r.html");
    for part in ["<dt>used</dt>", "of processor time, ", "<th class=\"n\">peak memory</th>", "<td class=\"n over\">"] {
        assert!(report.contains(part), "{part} in {report}");
    }
}
