//! Expressions. Whatever one says, it is compiled or refused with places that are in it, it mentions what stands in it, and it
//! gives the same every time.

use super::Target;
use onceflow_core::model::Type;
use onceflow_exec::{
    expr::{Bindings, compile},
    template,
    value::{FileValue, PortValue},
};
use std::ops::Range;

pub(super) const TARGET: Target = Target { name: "expr", run, seeds: Vec::new, words: WORDS };

// No `lists.range`: a few of them inside one another go on for years, and nothing here could tell that from a hang.
const WORDS: &[&[u8]] = &[
    b"inputs.n",
    b"inputs.names",
    b"sample",
    b"none",
    b"a.b",
    b".map(x, ",
    b".filter(x, ",
    b".exists(x, ",
    b".all(x, ",
    b"has(",
    b"size(",
    b"int(",
    b"double(",
    b"string(",
    b"bytes(",
    b"timestamp(",
    b"duration(",
    b"type(",
    b"dyn(",
    b"math.greatest(",
    b".matches('",
    b".split('",
    b".join(",
    b".replace('",
    b".substring(",
    b".format([",
    b".sortBy(x, ",
    b".flatten()",
    b".slice(",
    b".distinct()",
    b".reverse()",
    b"(",
    b")",
    b"[",
    b"]",
    b"{",
    b"}",
    b"'",
    b"\"",
    b"'''",
    b"\"\"\"",
    b"r'\\'",
    b"b'",
    b"// '\n",
    b"//",
    b"\n",
    b"\\",
    b"\\x41",
    b"\\u00e9",
    b"?",
    b":",
    b" ? ",
    b" : ",
    b" in ",
    b"!",
    b"-",
    b"+",
    b"*",
    b"/",
    b"%",
    b"&&",
    b"||",
    b"==",
    b"<",
    b",",
    b".",
    b"?.",
    b"[?",
    b"1",
    b"0",
    b"-1",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"1u",
    b"1e308",
    b"0x7f",
    b".5",
    b"true",
    b"null",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
    b"`",
    b"as",
    b"while",
    b"_",
    b"@",
    b"#",
    b"\0",
    b"${{ ",
    b" }}",
];

fn scope() -> Bindings {
    let mut scope = Bindings::new();
    scope.bind("inputs-n", PortValue::Int(3));
    scope.bind("inputs-f", PortValue::Float(0.5));
    scope.bind("inputs-names", PortValue::List(vec![PortValue::text("a"), PortValue::text("b")]));
    scope.bind("sample", FileValue { name: "s 1.fq.gz".into(), path: "/w/in/sample/s 1.fq.gz".into() }.into());
    scope.bind("none", PortValue::Null);
    scope.bind("a-b", PortValue::Bytes(vec![0, 255]));
    scope
}

fn run(input: &[u8]) -> String {
    let source = String::from_utf8_lossy(input);
    let holes = holes(&source);
    let compiled = match compile(&source) {
        Ok(compiled) => compiled,
        Err(wrong) => {
            assert!(!wrong.is_empty(), "refused without a reason");
            for wrong in &wrong {
                within(&source, &wrong.span);
                assert!(!wrong.message.is_empty(), "refused without words");
            }
            let kind = wrong[0].message.split('`').next().unwrap_or_default();
            return format!("{holes} no: {}", kind.chars().take(40).collect::<String>());
        }
    };
    for reference in compiled.references() {
        within(&source, &reference.span);
        assert!(!reference.path.is_empty(), "a reference to nothing");
    }
    let scope = scope();
    let given = compiled.eval(&scope);
    assert_eq!(format!("{given:?}"), format!("{:?}", compiled.eval(&scope)), "it gives something else the second time");
    match given {
        Err(failed) => {
            assert!(!failed.why.is_empty() && failed.types.len() <= 8, "{failed}");
            format!("{holes} fails: {}", failed.why.split(['`', '"', '(']).next().unwrap_or_default())
        }
        Ok(value) => {
            let _shown = value.to_json().to_string();
            for ty in [Type::Int, Type::Text, Type::list(Type::Text), Type::Option(Box::new(Type::Float)), Type::File] {
                if let Ok(conformed) = compiled.eval_as(&scope, &ty) {
                    let again = conformed.clone().conform(&ty);
                    assert_eq!(
                        format!("{again:?}"),
                        format!("{:?}", Ok::<_, ()>(conformed)),
                        "of {ty:?}, but not twice"
                    );
                }
            }
            format!("{holes} gives {}", value.kind())
        }
    }
}

fn within(source: &str, span: &Range<usize>) {
    assert!(source.get(span.clone()).is_some(), "{span:?} is no place in {source:?}");
}

/// The same text as one with holes.
fn holes(source: &str) -> usize {
    match template::parse(source) {
        Ok(parsed) => format!("{parsed:?}").matches("Hole").count().min(3),
        Err(wrong) => {
            wrong.iter().for_each(|wrong| within(source, &wrong.span));
            9
        }
    }
}
