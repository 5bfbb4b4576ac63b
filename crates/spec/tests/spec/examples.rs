//! The examples of the repository load, and have the inputs that they document.

use onceflow_exec::value::PortValue;
use onceflow_spec::{GivenInputs, LoadOptions, load};
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn every_example_loads() {
    for name in ["wordcount", "variants", "saga", "refine", "samplesheet"] {
        if let Err(problems) = load(&examples().join(name).join("flow.yaml"), &LoadOptions::default()) {
            panic!("{problems}");
        }
    }
}

#[test]
fn a_sample_sheet_becomes_records_with_files_that_are_there() {
    let flow = load(&examples().join("samplesheet/flow.yaml"), &LoadOptions::default()).unwrap();
    let sheet = examples().join("samplesheet/samples.csv");
    let given = GivenInputs { words: vec![("samples".into(), sheet.display().to_string())], file: None };
    let bound = flow.bind(&given).unwrap();
    let PortValue::List(rows) = &bound[0].1 else { panic!("{bound:?}") };
    assert_eq!(rows.len(), 2);
    let PortValue::Record(liver) = &rows[1] else { panic!("{rows:?}") };
    assert_eq!(liver["id"], PortValue::text("liver"));
    assert_eq!(liver["r2"], PortValue::Null);
    assert!(matches!(&liver["r1"], PortValue::File(file) if file.name == "liver.fq" && file.path.is_absolute()));
    assert_eq!(flow.bind(&GivenInputs { words: vec![], file: Some(sheet) }).unwrap(), bound);
}
