//! Checks that the table of functions matches the evaluator.

use super::*;
use crate::expr::{Bindings, eval, infer, infer::TypeProblem};
use cel::common::ast::operators as op;

/// A value of every type, as an expression. The optional is an empty one, so that all arguments are evaluated.
const SAMPLES: [(CelType, &str); 10] = [
    (CelType::Bool, "true"),
    (CelType::Int, "1"),
    (CelType::Uint, "1u"),
    (CelType::Float, "1.0"),
    (CelType::Text, "'1'"),
    (CelType::Bytes, "b'1'"),
    (CelType::List, "['1']"),
    (CelType::Map, "{'1': 1}"),
    (CelType::Type, "type(1)"),
    (CelType::Optional, "{'a': 1}.?b"),
];

/// The evaluator finds a function to call, even if the call then fails.
fn is_callable(source: &str) -> bool {
    match eval(source, &Bindings::default()) {
        Ok(_) => true,
        Err(error) => {
            let no_overload = ["does not take", "nothing is called", "cannot be compared", "o such overload"];
            !no_overload.iter().any(|words| error.why.contains(words))
        }
    }
}

fn sample(ty: CelType) -> &'static str {
    SAMPLES.iter().find(|(known, _)| *known == ty).expect("a sample").1
}

fn combinations(count: usize) -> Vec<Vec<CelType>> {
    (0..count).fold(vec![vec![]], |all, _| {
        let more = |one: &Vec<CelType>| SAMPLES.map(|(ty, _)| [one.as_slice(), &[ty]].concat());
        all.iter().flat_map(more).collect()
    })
}

#[test]
fn the_table_of_functions_accepts_exactly_what_the_evaluator_can_call() {
    let mut names: Vec<_> = FORMS.iter().map(|form| form.name).collect();
    names.dedup();
    let mut differing = Vec::new();
    for name in names {
        for is_method in [false, true] {
            // One argument more than the longest form is enough to see that no longer form exists.
            let most = FORMS.iter().filter(|form| form.name == name).map(|form| form.takes.len()).max().unwrap_or(0);
            for count in usize::from(is_method)..=(most + 1).min(3) {
                for types in combinations(count) {
                    let args: Vec<_> = types.iter().map(|ty| sample(*ty)).collect();
                    let source = match is_method {
                        true => format!("({}).{name}({})", args[0], args[1..].join(", ")),
                        false => format!("{name}({})", args.join(", ")),
                    };
                    if is_method && name.contains('.') {
                        continue;
                    }
                    let listed = FORMS.iter().any(|form| form.name == name && form.accepts(is_method, &types));
                    if listed != is_callable(&source) {
                        differing.push(format!(
                            "{source}: in the table {listed}: {:?}",
                            eval(&source, &Bindings::default()).map_err(|e| e.why)
                        ));
                    }
                }
            }
        }
    }
    assert!(
        differing.is_empty(),
        "{} calls differ:\n{}",
        differing.len(),
        differing[..differing.len().min(40)].join("\n")
    );
}

#[test]
fn operators_take_exactly_the_types_that_the_evaluator_takes() {
    let mut differing = Vec::new();
    let binary = [
        (op::ADD, "+"),
        (op::SUBSTRACT, "-"),
        (op::MULTIPLY, "*"),
        (op::DIVIDE, "/"),
        (op::MODULO, "%"),
        (op::LESS, "<"),
        (op::GREATER_EQUALS, ">="),
        (op::EQUALS, "=="),
        (op::IN, "in"),
    ];
    for types in combinations(2) {
        for (name, symbol) in binary {
            let source = format!("{} {symbol} {}", sample(types[0]), sample(types[1]));
            // The evaluator appends the names of the fields, which no user intends, so the table leaves this out.
            let is_odd = name == op::ADD && types == [CelType::List, CelType::Map];
            if !is_odd && infer::takes(name, &types) != is_callable(&source) {
                differing.push(format!("{source}: {:?}", eval(&source, &Bindings::default()).map_err(|e| e.why)));
            }
        }
    }
    for types in combinations(1) {
        for (name, symbol) in [(op::LOGICAL_NOT, "!"), (op::NEGATE, "-")] {
            let source = format!("{symbol}({})", sample(types[0]));
            if infer::takes(name, &types) != is_callable(&source) {
                differing.push(format!("{source}: {:?}", eval(&source, &Bindings::default()).map_err(|e| e.why)));
            }
        }
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn every_macro_of_the_table_is_one_of_the_evaluator() {
    for source in [
        "has({'a': 1}.a)",
        "[1].all(x, x > 0)",
        "[1].exists(x, x > 0)",
        "[1].exists_one(x, x > 0)",
        "[1].existsOne(x, x > 0)",
        "[1].map(x, x + 1)",
        "[1].map(x, x > 0, x + 1)",
        "[1].filter(x, x > 0)",
        "[2, 1].sortBy(x, -x)",
        "math.greatest(1, 2, 3)",
        "math.least([1, 2])",
    ] {
        assert!(eval(source, &Bindings::default()).is_ok(), "{source}: {:?}", eval(source, &Bindings::default()));
        assert!(infer::infer(source, &|_| None).is_ok(), "{source}");
    }
    assert_eq!(MACROS.lines().count(), 11);
}

#[test]
fn a_wrong_call_says_what_is_wrong_where_and_what_was_meant() {
    let lookup = |path: &[String]| match path.join(".").as_str() {
        "n" => Some(Type::Int),
        "t" => Some(Type::Text),
        "l" => Some(Type::list(Type::Text)),
        "f" => Some(Type::File),
        "o" => Some(Type::option(Type::Text)),
        _ => None,
    };
    let mut told = String::new();
    for source in [
        "t.toUpper()",
        "t.upperascii()",
        "len(l)",
        "size(n)",
        "contains(t, 'a')",
        "l.size(1)",
        "t.split()",
        "n + 1.5",
        "'n = ' + n",
        "l.map(x, x + 1)",
        "n.map(x, x)",
        "l.map(x)",
        "l.exists(x, x.foo())",
        "math.ceiling(1.0)",
        "base64.encode(b'a')",
        "n ? 1 : 2",
        "!n && t",
        "f + 'x'",
        "Point{x: 1}",
        "l['a']",
    ] {
        for TypeProblem { span, message, hint } in infer::infer(source, &lookup).expect_err(source) {
            told.push_str(&format!("{source}: {} | {message} | {hint}\n", &source[span]));
        }
    }
    expect_test::expect![[r#"
        t.toUpper(): toUpper | there is no function `toUpper` | did you mean `text.upperAscii()`?
        t.upperascii(): upperascii | there is no function `upperascii` | did you mean `text.upperAscii()`?
        len(l): len | there is no function `len` | did you mean `size(text|bytes|list|map)`?
        size(n): size | `size` does not take (int) | `size(text|bytes|list|map)`, `text|bytes|list|map.size()`
        contains(t, 'a'): contains | `contains` is called on a value | `text.contains(text)`
        l.size(1): size | `size` does not take 1 argument | `size(text|bytes|list|map)`, `text|bytes|list|map.size()`
        t.split(): split | `split` does not take 0 arguments | `text.split(text)`, `text.split(text, int)`
        n + 1.5: + | `+` does not take int and float | `double(x)` is an int as float
        'n = ' + n: + | `+` does not take text and int | `string(x)` is a number as text
        l.map(x, x + 1): + | `+` does not take text and int | `string(x)` is a number as text
        n.map(x, x): x | this goes over the elements of a list or a map, but int has none | 
        l.map(x): map | `map` does not take 1 argument | `list|map.map(x, any)`, `list|map.map(x, bool, any)`
        l.exists(x, x.foo()): foo | there is no function `foo` | `onceflow error OF0141` lists all functions
        math.ceiling(1.0): ceiling | there is no function `math.ceiling` | did you mean `math.ceil(float)`?
        base64.encode(b'a'): encode | there is no function `base64.encode` | `onceflow error OF0141` lists all functions
        n ? 1 : 2: ? | the condition of `? :` is int, not bool | 
        !n && t: ! | `!` does not take int | 
        !n && t: && | `&&` does not take text | 
        f + 'x': + | `+` does not take file and text | 
        Point{x: 1}: Point | there is no type `Point` | a record is written `{'field': value}`
        l['a']: [ | an element of a list has a number, but this is text | 
    "#]]
    .assert_eq(&told);
    for source in ["o.size() > 0", "j.x.y.contains('1')", "l.filter(x, x != '').map(x, x + '.gz')", "size(f)", "j + 1"]
    {
        assert!(infer::infer(source, &lookup).is_ok(), "{source}");
    }
}
