//! Tests of expressions.

use super::*;
use crate::value::FileValue;
use expect_test::expect;
use proptest::prelude::*;

fn names(source: &str) -> String {
    let compiled = compile(source).unwrap();
    let shown = compiled.references().iter().map(|found| {
        assert_eq!(
            source[found.span.clone()].split_whitespace().collect::<String>().trim_start_matches('.'),
            found.path.join("."),
            "{source}"
        );
        found.path.join(".")
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn scope() -> Bindings {
    let mut scope = Bindings::new();
    scope.bind("inputs-n", PortValue::Int(3));
    scope.bind("inputs-names", PortValue::List(vec![PortValue::text("a"), PortValue::text("b")]));
    scope.bind("sample", FileValue { name: "s 1.fq.gz".into(), path: "/w/in/sample/s 1.fq.gz".into() }.into());
    scope.bind("none", PortValue::Null);
    scope
}

#[test]
fn references_of_an_expression_are_found_with_their_columns() {
    let cases = [
        ("inputs.reads", "inputs.reads"),
        ("a . b", "a.b"),
        ("a.b[c.d].e + size(f)", "a.b c.d f"),
        ("has(a.b) ? a.b : c", "a.b a.b c"),
        ("xs.map(x, x + y).filter(z, z > x)", "xs y x"),
        ("xs.exists(i, i == j) && i", "xs j i"),
        ("'é' + a.b.startsWith(c)", "a.b c"),
        ("math.greatest(1, n) + mathx.y", "n mathx.y"),
        ("{'k': v, w: 1}", "v w"),
        ("type(x) == int", "x"),
        ("1 + 2", ""),
        ("in_a in b", "in_a b"),
    ];
    for (source, expected) in cases {
        assert_eq!(names(source), expected, "{source}");
    }
}

#[test]
fn only_a_bare_reference_is_one() {
    for (source, is_one) in [("a.b", true), ("a", true), ("(a)", false), ("a.b + 0", false), ("has(a.b)", false)] {
        assert_eq!(compile(source).unwrap().as_reference().is_some(), is_one, "{source}");
    }
}

#[test]
fn expressions_compute_with_files_lists_and_texts() {
    let cases = [
        ("inputs.n + 1", "4"),
        ("inputs.names.map(n, n + '.txt')", r#"["a.txt","b.txt"]"#),
        ("sample", r#""/w/in/sample/s 1.fq.gz""#),
        ("sample.stem + '|' + sample.ext + '|' + sample.name", r#""s 1.fq|gz|s 1.fq.gz""#),
        ("sample.path", r#""/w/in/sample/s 1.fq.gz""#),
        ("[sample, sample].map(s, s)[1]", r#""/w/in/sample/s 1.fq.gz""#),
        ("none == null", "true"),
        ("has(inputs.n) && !has(inputs.m)", "true"),
        ("'a-b'.split('-')", r#"["a","b"]"#),
        ("'x12'.matches('^x[0-9]+$')", "true"),
        ("math.greatest(1, inputs.n)", "3"),
        ("double(inputs.n) / 2.0", "1.5"),
        ("size(inputs.names)", "2"),
        ("inputs.names.join(',')", r#""a,b""#),
    ];
    for (source, expected) in cases {
        let given = eval(source, &scope()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(given.to_json().to_string(), expected, "{source}");
    }
}

#[test]
fn a_failure_names_the_expression_and_the_types() {
    let sources = ["inputs.n + sample.name", "inputs.m", "nope.x", "inputs.names[7]", "inputs.n / 0", "inputs.n < 'a'"];
    let told: Vec<_> = sources.iter().map(|source| eval(source, &scope()).unwrap_err().to_string()).collect();
    expect![[r#"
        `inputs.n + sample.name` cannot be computed: `add` does not take 3 (int) and "s 1.fq.gz" (text) (inputs.n is int, sample.name is text)
        `inputs.m` cannot be computed: there is no `m` (inputs.m is unknown)
        `nope.x` cannot be computed: nothing is called `nope` (nope.x is unknown)
        `inputs.names[7]` cannot be computed: there is no element 7 (int) (inputs.names is list)
        `inputs.n / 0` cannot be computed: division by zero (inputs.n is int)
        `inputs.n < 'a'` cannot be computed: `<` does not take (int, string) (inputs.n is int)"#]]
    .assert_eq(&told.join("\n"));
    let wrong = compile("inputs.n + 1").unwrap().eval_as(&scope(), &Type::Text).unwrap_err();
    expect!["`inputs.n + 1` cannot be computed: text wanted, but 4 (int) found (inputs.n is int)"]
        .assert_eq(&wrong.to_string());
}

#[test]
fn a_malformed_expression_is_reported_with_its_column() {
    let mut told = String::new();
    for source in ["a +", "a b", "é && )", "'open", "a..b", "(((", "x.map(1, 2)", ""] {
        for wrong in compile(source).unwrap_err() {
            told.push_str(&format!("{source}: {:?} {}\n", wrong.span, wrong.message));
        }
    }
    expect![[r#"
        a +: 3..3 the expression is not complete
        a b: 2..3 `b` is not expected here
        é && ): 0..2 `é` cannot be read
        é && ): 3..4 `&&` is not expected here
        é && ): 6..7 `)` is not expected here
        'open: 0..1 `'open` cannot be read
        'open: 5..5 the expression is not complete
        a..b: 2..3 `..` is not expected here
        (((: 3..3 the expression is not complete
        x.map(1, 2): 6..7 argument must be a simple name
        : 0..0 the expression is not complete
    "#]]
    .assert_eq(&told);
    let deep = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert_eq!(compile(&deep).unwrap_err()[0].message, "too many operators and brackets inside one another");
    assert!(compile(&"a+".repeat(100_000)).unwrap_err()[0].message.contains("too long"));
}

#[test]
fn long_chains_are_refused_or_computed_but_never_crash() {
    let chains =
        ["1+", "!", "-", "a?b:", "a.b.", "[0].", "x&&", "a in ", "(", "[", "{1:", "f(", "x.map(y, ", "a[", "- "];
    for chain in chains {
        for times in (1..400).chain([SOURCE_BYTES_MAX / chain.len() - 10]) {
            let closing = |open: char, close: char| close.to_string().repeat(chain.matches(open).count() * times);
            let closing = closing('(', ')') + &closing('[', ']') + &closing('{', '}');
            if let Ok(compiled) = compile_fresh(&format!("{}1{closing}", chain.repeat(times))) {
                let _computed = compiled.eval(&Bindings::new());
            }
        }
    }
    assert!(compile(&format!("[{}1]", "1, a.b, ".repeat(4_000))).is_ok(), "what is wide is not deep");
}

/// Each of these sources once made the brackets and operators after it look like text.
#[test]
fn references_outside_string_literals_are_counted() {
    let chain = |times: usize| "+1".repeat(times);
    let hidden = [
        ("r'\\'", "+''"),
        ("1r'\\'", "+''"),
        ("bR\"\\\"", "+\"\""),
        ("// it's\n1", "// '"),
        ("// '''\n1", "// '''"),
        ("'\\q'", "+'"),
        ("'\n1", "'"),
        ("''' ' '''", "+ '"),
        ("'a\"\"\"\n1", "+\"\"\""),
        ("a.`x//` + '''\n''' +1", ""),
        ("'\\'", ""),
    ];
    for (before, after) in hidden {
        assert!(compile(&format!("{before}{}{after}", chain(20_000))).is_err(), "{before}");
    }
    let shown = [
        "r'((\\' + 'a'",
        "'''it's ((((\n \\' ''' + \"\\u00e9\\x41\\101\"",
        "// it's ((((( a comment\n1 + 1 // '",
        "b'((' == br'(('",
    ];
    for source in shown {
        let padded = format!("'{}' == '' || [{source}] == []", "(".repeat(1000));
        assert!(compile(&padded.replace("1 // '] == []", "1 // '\n] == []")).is_ok(), "{padded}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_compiler_panic(source in "[a-z0-9.()\\[\\]{}'\"+*?:,<>=&|! é\\\\]{0,24}") {
        if let Ok(compiled) = compile(&source) {
            for reference in compiled.references() {
                prop_assert!(source.get(reference.span.clone()).is_some());
            }
            let _computed = compiled.eval(&scope());
        }
    }
}

#[test]
fn a_plain_reference_is_seen_without_parsing_and_means_the_same() {
    let sources =
        ["a", "a.b", "a.b.c_1", "_x.y", "in", "a.in", "true", "size", "a.size", "list", "a b", "a.", ".a", "1a", "a-b"];
    for source in sources {
        let seen = references::plain(source);
        let parsed = parse(source).ok().map(|program| references::of(&program, source));
        if let Some(seen) = seen {
            assert_eq!(parsed.as_deref(), Some(&[seen][..]), "{source}");
        }
    }
    assert!(references::plain("inputs.reference").is_some() && references::plain("a.in").is_none());
}

#[test]
fn an_expression_that_would_go_on_for_ever_fails_and_says_why() {
    let range = "lists.range(1000000)";
    let doubled = format!("['{}']{}[0]", "x".repeat(1000), ".map(s, s + s)".repeat(25));
    let nested = format!("[1]{}", ".map(l, [l, l])".repeat(25));
    let nested_maps = format!("[1]{}", ".map(l, {'a': l, 'b': l})".repeat(22));
    let endless = [
        format!("{range}.map(x, {range})"),
        format!("{range}.map(x, {range}.map(y, x * y)).size()"),
        format!("{range}.all(x, {range}.all(y, {range}.all(z, true)))"),
        format!("{range}.exists(x, {range}.exists(y, y == -1)) || true"),
        format!("{range}.filter(x, x in {range}) == []"),
        format!("{range}.exists_one(x, {range}.size() == x)"),
        format!("{range}.distinct().size()"),
        format!("{range}.sortBy(x, {range}.sort()[0])"),
        format!("{range}.map(x, '{}').size()", "x".repeat(1000)).replace("size", "join"),
        doubled,
        nested,
        nested_maps,
    ];
    for source in endless {
        let error = compile(&source).unwrap().eval(&scope()).unwrap_err();
        assert!(error.why.contains("more than 10 million elements"), "{}: {}", &source[..60], error.why);
    }
}

#[test]
fn counting_references_does_not_change_an_expression() {
    let same = [
        ("[3, 1, 2].map(x, x * 2).filter(x, x > 2).sort() == [4, 6]", "true (bool)"),
        ("[1, 2, 3].exists(x, 1 / (x - 2) > 0)", "true (bool)"),
        ("[1, 2, 3].exists_one(x, x == 2) && [1, 2].all(x, x in [2, 1, 0])", "true (bool)"),
        ("{'a': 1, 'b': 2}.map(k, k).size() + {'a': {'b': [1, 2]}}.a.b.size()", "4 (int)"),
        ("['b', 'a', 'b'].distinct().join('-')", "\"b-a\" (text)"),
        ("[[3], [1]].sortBy(l, l[0])[0][0]", "1 (int)"),
        ("lists.range(300000).map(x, x + 1).filter(x, x % 2 == 0).size()", "150000 (int)"),
        ("true ? 'a' + 'b' : 'c'", "\"ab\" (text)"),
        ("has({'a': 1}.a) && math.greatest(1, 2) == 2 && [1] + [2] == [1, 2]", "true (bool)"),
    ];
    for (source, expected) in same {
        let given = compile(source).unwrap().eval(&scope()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(given.describe(), expected, "{source}");
    }
}
