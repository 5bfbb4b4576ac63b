//! The examples of the repository load, and take what they say they take.

use onceflow_exec::value::Value;
use onceflow_spec::{Given, Options, load};
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn every_example_loads() {
    for name in ["wordcount", "variants", "saga", "refine", "samplesheet"] {
        if let Err(problems) = load(&examples().join(name).join("flow.yaml"), &Options::default()) {
            panic!("{problems}");
        }
    }
}

#[test]
fn a_sample_sheet_becomes_records_with_files_that_are_there() {
    let flow = load(&examples().join("samplesheet/flow.yaml"), &Options::default()).unwrap();
    let sheet = examples().join("samplesheet/samples.csv");
    let given = Given { words: vec![("samples".into(), sheet.display().to_string())], file: None };
    let bound = flow.bind(&given).unwrap();
    let Value::List(rows) = &bound[0].1 else { panic!("{bound:?}") };
    assert_eq!(rows.len(), 2);
    let Value::Record(liver) = &rows[1] else { panic!("{rows:?}") };
    assert_eq!(liver["id"], Value::text("liver"));
    assert_eq!(liver["r2"], Value::Null);
    assert!(matches!(&liver["r1"], Value::File(file) if file.name == "liver.fq" && file.path.is_absolute()));
    assert_eq!(flow.bind(&Given { words: vec![], file: Some(sheet) }).unwrap(), bound);
}
