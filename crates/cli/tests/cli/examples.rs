//! Every example is run as its text says, from a directory of its own.

use crate::support;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
};
use support::Bed;

/// A copy of the examples.
fn examples() -> Bed {
    let bed = Bed::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    copy(&root.join("examples"), &bed.path("examples"));
    bed
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("a copy")),
        }
    }
}

#[test]
fn every_example_is_run_by_a_test() {
    let bed = examples();
    let mut found: Vec<_> =
        fs::read_dir(bed.path("examples")).expect("examples").flatten().map(|entry| entry.file_name()).collect();
    found.sort();
    // `delivery`, `variants` and `weblog` have tests of their own.
    assert_eq!(found, ["delivery", "refine", "saga", "samplesheet", "variants", "weblog", "wordcount"]);
    for name in found {
        let file = if name == "weblog" { "stream" } else { "flow" };
        bed.run(&["check", &format!("examples/{}/{file}.yaml", name.display())]).ends(0);
    }
}

#[test]
fn words_are_counted_in_files_of_any_name() {
    let bed = examples();
    let args = ["run", "examples/wordcount/flow.yaml", "--input", "texts=examples/wordcount/texts/*.txt"];
    let said = bed.run(&args).ends(0);
    let data = said.json();
    assert_eq!((&data["total"], &data["texts"]), (&"results/total.txt".into(), &3.into()));
    let total = bed.read("results/total.txt");
    let (words, texts) = (data["words"].as_str().expect("text"), fs::read_dir(bed.path("examples/wordcount/texts")));
    assert!(words.lines().count() == 5 && total.starts_with(words), "{words}");
    let counted: usize =
        total.lines().map(|line| line.split(' ').next().and_then(|n| n.parse::<usize>().ok()).expect("a number")).sum();
    let all = texts.expect("texts").flatten().map(|entry| fs::read_to_string(entry.path()).expect("a text"));
    let there: usize =
        all.map(|text| text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).count()).sum();
    assert_eq!(counted, there);
    assert!(bed.run(&args).ends(0).stderr.contains("nothing to do"));
}

#[test]
fn a_sheet_of_samples_is_read_and_counted() {
    let bed = examples();
    let data = bed
        .run(&["run", "examples/samplesheet/flow.yaml", "--input", "samples=examples/samplesheet/samples.csv"])
        .ends(0)
        .json();
    assert_eq!(data, serde_json::json!({"table": "results/reads.tsv", "total": 4, "dna": data["dna"]}));
    assert_eq!(bed.read("results/reads.tsv").lines().count(), 2);
}

#[test]
fn a_loop_ends_when_it_is_good_enough() {
    let bed = examples();
    let data = bed.run(&["run", "examples/refine/flow.yaml", "--input", "number=2"]).ends(0).json();
    assert!((data["root"].as_f64().expect("a number") - 2_f64.sqrt()).abs() < 1e-6, "{data}");
    assert!(data["report"].as_str().expect("text").starts_with("the root of 2"), "{data}");
    let other = bed.run(&["run", "examples/refine/flow.yaml", "--input", "number=81"]).ends(0).json();
    assert!((other["root"].as_f64().expect("a number") - 9.0).abs() < 1e-6, "{other}");
}

/// Starts a shop that answers every request, and ships if `ships`; returns its address and its requests, in order.
fn shop(ships: bool) -> (String, std::sync::mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.expect("a client");
            let mut reader = BufReader::new(&connection);
            let (mut request, mut len) = (String::new(), 0);
            reader.read_line(&mut request).expect("a request");
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).expect("a header");
                let Some((name, value)) = header.trim_end().split_once(": ") else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    len = value.parse().expect("a length");
                }
            }
            let mut body = vec![0; len];
            reader.read_exact(&mut body).expect("a body");
            let path = request.split(' ').nth(1).expect("a path").to_owned();
            let status = if path == "/shipments" && !ships { "422 Unprocessable Entity" } else { "200 OK" };
            let answer = "{\"receipt\": \"r-1\", \"parcel\": \"p-1\"}";
            let head = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            (&connection).write_all(format!("{head}{answer}").as_bytes()).expect("an answer");
            tell.send((path, String::from_utf8(body).expect("text"))).expect("somebody listens");
        }
    });
    (address, asked)
}

#[test]
fn an_order_is_charged_and_shipped_or_refunded() {
    for ships in [true, false] {
        let bed = examples();
        let (address, asked) = shop(ships);
        let server = format!("server={address}");
        let args = [
            "run",
            "examples/saga/flow.yaml",
            "--key",
            "order-17",
            "--input",
            &server,
            "--inputs",
            "examples/saga/order.yaml",
        ];
        let said = bed.run(&args).ends(if ships { 0 } else { 1 });
        let asked: Vec<_> = asked.try_iter().collect();
        let paths: Vec<_> = asked.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            if ships { &["/charges", "/shipments"][..] } else { &["/charges", "/shipments", "/refunds"] }
        );
        let body: serde_json::Value = serde_json::from_str(&asked[1].1).expect("JSON");
        assert_eq!(body, serde_json::json!({"order": "order-17", "goods": ["a lamp", "two bulbs"], "receipt": "r-1"}));
        if ships {
            assert_eq!(said.json(), serde_json::json!({"receipt": "r-1", "parcel": "p-1"}));
        }
        bed.run(&["fsck"]).ends(0);
    }
}
