//! Values go through their stored form unhurt, and the kernel's types say what they are.

use onceflow::{Bytes, Directory, File, Value, model::Type, task::Data, value::Error};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
};

/// A value comes back as it was, twice to the same data, and its type is called this.
#[track_caller]
fn check<T: Value + Clone + PartialEq + Debug>(value: T, ty: &str) {
    let data = value.clone().encode().unwrap();
    assert_eq!(data, value.clone().encode().unwrap());
    assert_eq!(T::decode(data).unwrap(), value);
    assert_eq!(T::ty().to_string(), ty);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Point {
    x: i64,
    y: f64,
    tags: Vec<String>,
    next: Option<Box<Point>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Renamed {
    #[serde(rename = "z")]
    x: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct WithForeign {
    number: std::num::NonZeroU8,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Holds {
    r#type: u64,
    point: Renamed,
    pair: (u64, String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Wrapped(u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
enum Shape {
    Nothing,
    Circle(f64),
    Square { side: f64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Value)]
struct Page<T> {
    items: Vec<T>,
}

#[test]
fn values_come_back_as_they_were() {
    check(true, "bool");
    for n in [0, 1, 127, 128, 65_535, 65_536, u64::MAX] {
        check(n, "int");
    }
    for n in [i64::MIN, -1, i64::MAX] {
        check(n, "int");
    }
    check(7_u8, "int");
    check(1.5_f32, "float");
    check(f64::MAX, "float");
    check(String::from("Grüße"), "text");
    check(Bytes::from_static(&[0xc0]), "bytes");
    check((), "unit");
    check(Vec::<u8>::new(), "list<int>");
    check(vec![vec![1_u64], vec![]], "list<list<int>>");
    check(vec![Some(1_u64), None], "list<option<int>>");
    check(Some(String::new()), "option<text>");
    check(None::<Vec<u64>>, "option<list<int>>");
    check(Some(Vec::<u64>::new()), "option<list<int>>");
    check(Some(()), "option<unit>");
    check(Some(Bytes::from_static(&[0xc0])), "option<bytes>");
    check((1_u64, String::from("x")), "(int, text)");
    check(BTreeMap::from([(String::from("a"), 1_u64)]), "map<text, int>");
    check(BTreeSet::from([3_u64, 1]), "set<int>");
}

#[test]
fn types_of_ones_own_are_records_or_known_by_name() {
    let inner = Point { x: 1, y: 0.5, tags: vec![], next: None };
    let point = Point { x: -1, y: 0.25, tags: vec!["a".into()], next: Some(Box::new(inner)) };
    check(point.clone(), "{ next: option<Point>, tags: list<text>, x: int, y: float }");
    check(vec![point.clone()], "list<{ next: option<Point>, tags: list<text>, x: int, y: float }>");
    check(Renamed { x: 1 }, "Renamed");
    check(WithForeign { number: std::num::NonZeroU8::MIN }, "WithForeign");
    let holds = Holds { r#type: 1, point: Renamed { x: 1 }, pair: (1, "x".into()) };
    check(holds, "{ pair: (int, text), point: Renamed, type: int }");
    check(Wrapped(7), "Wrapped");
    for shape in [Shape::Nothing, Shape::Circle(1.0), Shape::Square { side: 2.0 }] {
        check(shape, "Shape");
    }
    check(Page { items: vec![point] }, "Page<{ next: option<Point>, tags: list<text>, x: int, y: float }>");
}

#[test]
fn a_record_with_more_fields_is_read_where_fewer_are_wanted() {
    #[derive(Serialize, Deserialize, Value)]
    struct More {
        id: u64,
        name: String,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize, Value)]
    struct Fewer {
        name: String,
    }
    assert!(Fewer::ty().accepts(&More::ty()));
    let data = More { id: 1, name: "x".into() }.encode().unwrap();
    assert_eq!(Fewer::decode(data).unwrap(), Fewer { name: "x".into() });
}

#[test]
fn between_tasks_there_is_one_kind_of_nothing() {
    assert_eq!(Option::<Option<u64>>::ty(), Type::option(Type::Int));
    assert_eq!(Some(None::<u64>).encode().unwrap(), Data::None);
    // In a list, where something must stand for it, that is nil.
    let nil = || Data::Bytes(Bytes::from_static(&[0xc0]));
    assert_eq!(Option::<u64>::decode(nil()).unwrap(), None);
    assert_eq!(Option::<String>::decode(nil()).unwrap(), None);
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_naming_both_types() {
    let error = u64::decode(Data::List(vec![].into())).unwrap_err();
    assert_eq!(error.to_string(), "a value of type u64 was wanted, but a list is there");
    assert!(matches!(Vec::<u64>::decode(1_u64.encode().unwrap()), Err(Error::Kind { .. })));
    assert!(matches!(u64::decode((-1_i64).encode().unwrap()), Err(Error::Read { .. })));
    assert!(matches!(File::decode(Data::None), Err(Error::Kind { .. })));
    assert!(u64::decode(Data::None).is_err());
}

#[test]
fn files_and_directories_carry_names_and_content() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("b.txt", "two");
    write("a/deep/x.txt", "one");
    write("a.txt", "three");
    std::fs::create_dir(place.path().join("empty")).unwrap();

    let directory = Directory::from_path(place.path()).unwrap();
    let names: Vec<_> = directory.files().iter().map(File::name).collect();
    assert_eq!(names, ["a.txt", "a/deep/x.txt", "b.txt"]);
    assert_eq!(directory.get("a/deep/x.txt").unwrap().text().unwrap(), "one");
    assert!(directory.get("x.txt").is_none());
    check(directory, "dir");

    let file = File::from_path(place.path().join("b.txt")).unwrap();
    assert_eq!((file.name(), file.read().unwrap()), ("b.txt", b"two".to_vec()));
    check(file.clone().named("c.txt"), "file");
    check(vec![file], "list<file>");
    assert!(File::from_path("/").is_err());
}

#[test]
fn a_file_that_is_not_there_is_an_error_that_names_it() {
    let place = tempfile::tempdir().unwrap();
    let missing = place.path().join("missing.txt");
    let error = File::from_path(&missing).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("missing.txt"), "{error}");
    let error = File::from_path(place.path()).unwrap_err();
    assert!(error.to_string().ends_with("is not a regular file"), "{error}");
    std::os::unix::fs::symlink(&missing, place.path().join("dangling")).unwrap();
    let error = Directory::from_path(place.path()).unwrap_err();
    assert!(error.to_string().contains("dangling"), "{error}");
}

#[test]
fn maps_without_an_order_paths_and_times_are_values() {
    use std::{
        collections::HashSet,
        os::unix::ffi::OsStringExt as _,
        path::PathBuf,
        time::{Duration, SystemTime},
    };
    let names: Vec<_> = (0..100).map(|n| (format!("name {n}"), n)).collect();
    let ordered: BTreeMap<_, _> = names.iter().cloned().collect();
    for _ in 0..5 {
        // Every one is in another order, and all are the same bytes.
        let map: HashMap<String, u64> = names.iter().cloned().collect();
        assert_eq!(map.clone().encode().unwrap(), ordered.clone().encode().unwrap());
        check(map, "map<text, int>");
    }
    check(HashSet::from([3_u64, 1, 2]), "set<int>");
    check(HashMap::from([((1_u64, String::from("a")), vec![true])]), "map<(int, text), list<bool>>");
    check(PathBuf::from("data/reads.fq"), "text");
    check(Duration::from_millis(1500), "{ nanos: int, secs: int }");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    check(then, "{ nanos_since_epoch: int, secs_since_epoch: int }");
    check(onceflow::Timestamp::from_ms(7), "int");
    check(vec![Some(Duration::ZERO), None], "list<option<{ nanos: int, secs: int }>>");
    // A value that cannot be encoded is an error.
    assert!(PathBuf::from(std::ffi::OsString::from_vec(vec![0xff])).encode().is_err());
}
