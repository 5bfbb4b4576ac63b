//! Tests of values.

use super::*;
use onceflow_engine::task::{Data, FileData};
use proptest::prelude::*;
use serde_json::json;

fn record(fields: &[(&str, Type)]) -> Type {
    Type::Record(fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect())
}

fn file(name: &str) -> FileData {
    FileData::new(name, format!("/store/{name}"))
}

fn packed(value: &impl serde::Serialize) -> Data {
    Data::Bytes(rmp_serde::to_vec_named(value).unwrap().into())
}

#[test]
fn data_is_what_the_typed_crate_writes() {
    let some = |value: serde_json::Value, ty: &Type| PortValue::from_json(value, ty).unwrap().into_data(ty).unwrap();
    assert_eq!(some(json!(7), &Type::Int), packed(&7_u64));
    assert_eq!(some(json!(7), &Type::Float), packed(&7.0_f64));
    assert_eq!(some(json!("a"), &Type::Text), packed(&"a"));
    assert_eq!(some(json!(null), &Type::Unit), Data::Bytes(bytes::Bytes::new()));
    assert_eq!(some(json!(null), &Type::option(Type::Int)), Data::None);
    assert_eq!(some(json!("aGk="), &Type::Bytes), Data::Bytes("hi".into()));
    assert_eq!(some(json!([1, 2]), &Type::list(Type::Int)), Data::List(vec![packed(&1), packed(&2)].into()));
    assert_eq!(some(json!({"b": [1], "a": null}), &Type::Json), packed(&json!({"a": null, "b": [1]})));
    let ty = record(&[("a", Type::Int), ("b", Type::option(Type::Text))]);
    assert_eq!(some(json!({"b": "x", "a": 1, "c": 3}), &ty), packed(&json!({"a": 1, "b": "x"})));
    assert_eq!(some(json!({"a": 1}), &ty), packed(&json!({"a": 1, "b": null})));
    let ty = record(&[("f", Type::File), ("n", Type::Int)]);
    let expected = vec![packed(&"f"), Data::from(FileData::new("x", "/d/x")), packed(&"n"), packed(&1)];
    assert_eq!(some(json!({"n": 1, "f": "/d/x"}), &ty), Data::List(expected.into()));
}

#[test]
fn a_record_with_files_can_be_read_as_a_narrower_one() {
    let wide = record(&[("f", Type::File), ("n", Type::Int), ("o", Type::option(Type::File))]);
    let data = PortValue::from_json(json!({"n": 1, "f": "/d/x"}), &wide).unwrap().into_data(&wide).unwrap();
    for narrow in [record(&[("n", Type::Int)]), record(&[("f", Type::File)]), record(&[]), wide] {
        let value = PortValue::from_data(data.clone(), &narrow).unwrap();
        let PortValue::Record(fields) = &value else { panic!("{value:?}") };
        let Type::Record(types) = &narrow else { panic!() };
        assert!(fields.keys().eq(types.keys()), "{narrow}: {value:?}");
    }
}

#[test]
fn a_mismatch_says_where_what_was_wanted_and_what_was_found() {
    let ty = Type::list(record(&[("r1", Type::list(Type::Int)), ("r2", Type::File)]));
    let cases = [
        (json!([{"r1": [1, "x"], "r2": "a"}]), "`[0].r1[1]`: int wanted, but \"x\" (text) found"),
        (json!([{"r1": []}]), "`[0].r2`: file wanted, but no such field is found"),
        (json!([{"r1": [], "r2": 1.5}]), "`[0].r2`: file wanted, but 1.5 (float) found"),
        (json!({"a": 1}), "list<{ r1: list<int>, r2: file }> wanted, but a record { a } found"),
        (json!([{"r1": [], "r2": "/"}]), "`[0].r2`: file wanted, but a path without a name, `/`, found"),
    ];
    for (json, expected) in cases {
        assert_eq!(PortValue::from_json(json.clone(), &ty).unwrap_err().to_string(), expected, "{json}");
    }
    let wrong = PortValue::from_data(Data::from(file("x")), &Type::Int).unwrap_err().inside(".inputs.a");
    assert_eq!(wrong.to_string(), "`inputs.a`: int wanted, but a file found");
}

#[test]
fn a_number_is_converted_only_if_nothing_is_lost() {
    assert_eq!(PortValue::from_json(json!(3.0), &Type::Int), Ok(PortValue::Int(3)));
    assert!(PortValue::from_json(json!(3.5), &Type::Int).is_err());
    assert!(PortValue::from_json(json!(1e300), &Type::Int).is_err());
    assert!(PortValue::from_json(json!(u64::MAX), &Type::Int).is_err());
    assert!(PortValue::from_json(json!("3"), &Type::Int).is_err());
}

#[test]
fn a_file_survives_an_expression_and_a_directory_too() {
    let given = FileValue { name: "a b.tar.gz".into(), path: "/x/a b.tar.gz".into() };
    assert_eq!((given.stem(), given.ext()), ("a b.tar", "gz"));
    let hidden = FileValue { name: "d/.profile".into(), path: "/x".into() };
    assert_eq!((hidden.stem(), hidden.ext()), (".profile", ""));
    let directory = DirectoryValue { path: "/x/d".into(), files: vec![given.clone(), hidden] };
    for value in [given.into(), directory.into(), PortValue::List(vec![]), PortValue::Null] {
        assert_eq!(PortValue::from_cel(&value.to_cel()), Ok(value));
    }
}

#[test]
fn a_directory_is_all_files_below_it_by_relative_path() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("b/c")).unwrap();
    std::fs::create_dir_all(root.path().join("empty")).unwrap();
    for name in ["z", "b/y", "b/c/x"] {
        std::fs::write(root.path().join(name), name).unwrap();
    }
    let directory = DirectoryValue::read(root.path()).unwrap();
    let names: Vec<_> = directory.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["b/c/x", "b/y", "z"]);
    let data = PortValue::from(directory.clone()).into_data(&Type::Directory).unwrap();
    let PortValue::Directory(again) = PortValue::from_data(data, &Type::Directory).unwrap() else { panic!() };
    assert_eq!(again.files, directory.files);
    std::os::unix::fs::symlink("..", root.path().join("b/up")).unwrap();
    assert!(DirectoryValue::read(root.path()).is_err(), "a link that leads up is no endless directory");
}

/// A type, and a value of it in JSON.
fn typed() -> impl Strategy<Value = (Type, serde_json::Value)> {
    let leaf = prop_oneof![
        Just((Type::Unit, json!(null))),
        any::<bool>().prop_map(|value| (Type::Bool, json!(value))),
        any::<i64>().prop_map(|value| (Type::Int, json!(value))),
        (-1e9..1e9).prop_map(|value| (Type::Float, json!(value))),
        ".*".prop_map(|value| (Type::Text, json!(value))),
        Just((Type::Bytes, json!("aGk="))),
        "[a-z ]{1,4}".prop_map(|value| (Type::File, json!(format!("/f/{value}")))),
        any::<i64>().prop_map(|value| (Type::Json, json!({"x": [value, null, 1.5]}))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0..4_usize)
                .prop_map(|((ty, value), len)| (Type::list(ty), serde_json::Value::Array(vec![value; len]))),
            (inner.clone(), any::<bool>()).prop_map(|((ty, value), some)| {
                let ty = if matches!(ty, Type::Option(_) | Type::Unit) { Type::Int } else { ty };
                let some = some && value.is_object();
                (Type::option(ty), if some { value } else { json!(null) })
            }),
            proptest::collection::btree_map("[a-z]{1,3}", inner, 0..4).prop_map(|fields| {
                let types = fields.iter().map(|(name, (ty, _))| (name.clone(), ty.clone())).collect();
                let values = fields.into_iter().map(|(name, (_, value))| (name, value)).collect();
                (Type::Record(types), serde_json::Value::Object(values))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn stored_values_read_back_equal((ty, json) in typed()) {
        let Ok(value) = PortValue::from_json(json, &ty) else { return Ok(()) };
        let data = value.clone().into_data(&ty).unwrap();
        prop_assert_eq!(PortValue::from_data(data, &ty), Ok(value.clone()), "{}", ty);
        let cel = PortValue::from_cel(&value.to_cel()).unwrap().conform(&ty);
        prop_assert_eq!(cel, Ok(value), "{}", ty);
    }
}

#[test]
fn json_is_read_and_written_without_a_tree_and_is_the_same_as_through_one() {
    let all = r#"{"a":[1,-2,3.5,1e300,18446744073709551615,true,null,"x\u00e4\n",{"b":[],"c":{}}],"a":[0],"z":-0.0}"#;
    let through: serde_json::Value = serde_json::from_str(all).unwrap();
    let through = PortValue::from_json(through, &Type::Json).unwrap();
    let value = PortValue::parse_json(all.as_bytes()).unwrap();
    assert_eq!(value, through);
    assert_eq!(serde_json::to_string(&value.as_json()).unwrap(), value.to_json().to_string());
    assert!(PortValue::parse_json(b"[1,]").is_err() && PortValue::parse_json(b"1 2").is_err());
}
