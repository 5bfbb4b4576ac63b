//! Commands, through a real engine, with real shells.

use crate::support;
mod tampering;

use onceflow_core::model::{Retry, Type};
use onceflow_exec::{
    action::{Action, Capture, Shell},
    value::PortValue,
};
use std::collections::BTreeMap;
use support::{Lab, One, command, shown, text};

fn list(values: Vec<PortValue>) -> PortValue {
    PortValue::List(values)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reads_its_inputs_and_leaves_its_outputs_and_nothing_else() {
    let lab = Lab::new().await;
    let one = One::command(
        "tr a-z A-Z < ${{ inputs.reads }} > ${{ out.loud }}; wc -c < ${{ inputs.reads }}; mkdir x; echo > x/y",
    )
    .input("inputs-reads", Type::File, lab.file("it's $(reads) 1.txt", "abc"))
    .output("loud", Type::File, "${{ inputs.reads.stem }}.out")
    .output("size", Type::Int, "stdout");
    assert_eq!(lab.texts("k", &one).await, ["it's $(reads) 1.out=ABC", "3"]);
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn awkward_names_are_data_in_every_shell_and_without_one() {
    let lab = Lab::new().await;
    let names = ["a b", "it's", "\"q\"", "$(touch x)", "`x`", "-n", "a\nb", "é\u{1f600}", "*", "~", "a;b", "#c", "\\"];
    let files = list(names.iter().map(|name| lab.file(name, format!("<{name}>"))).collect());
    let all: String = names.iter().map(|name| format!("<{name}>")).collect();
    for (key, run, shell) in [
        ("bash", "for f in ${{ fs }}; do cat \"$f\"; done > ${{ out.o }}", Shell::Bash),
        ("sh", "for f in ${{ fs }}; do cat \"$f\"; done > ${{ out.o }}", Shell::Sh),
        ("custom", "cat ${{ fs }} > ${{ out.o }}", Shell::Custom(vec!["dash".into(), "-e".into()])),
    ] {
        let mut one = One::command(run).input("fs", Type::list(Type::File), files.clone()).output("o", Type::File, "o");
        if let Action::Command(command) = &mut one.action {
            command.shell = shell;
        }
        assert_eq!(lab.texts(key, &one).await, [format!("o={all}")]);
    }
    let one =
        One::command("cat ${{ fs }}").input("fs", Type::list(Type::File), files).output("o", Type::Text, "stdout");
    assert_eq!(lab.texts("direct", &one).await, [all]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_one_name_are_kept_apart_and_long_lists_arrive() {
    let lab = Lab::new().await;
    let file = lab.file("same", "x");
    let one = One::command(
        "for f in ${{ fs }}; do cat $f; echo \" $f\"; done | tee all | tail -n 1; wc -l < all | tr -d ' '",
    )
    .input("fs", Type::list(Type::File), list(vec![file.clone(); 100]))
    .output("o", Type::Text, "stdout");
    assert_eq!(lab.texts("many", &one).await, ["x in/fs/100/same\n100"]);
    let texts = list((0..10_000).map(|at| PortValue::text(format!("it's {at}"))).collect());
    let one = One::command("for t in ${{ ts }}; do echo \"$t\"; done | tail -n 1")
        .input("ts", Type::list(Type::Text), texts)
        .output("o", Type::Text, "stdout");
    assert_eq!(lab.texts("long", &one).await, ["it's 9999"]);
    let one = One::command("echo a ${{ fs }} b").input("fs", Type::list(Type::File), list(vec![])).output(
        "o",
        Type::Text,
        "stdout",
    );
    assert_eq!(lab.texts("none", &one).await, ["a b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_go_in_and_out_whole() {
    let lab = Lab::new().await;
    let make = One::command(
        "mkdir ${{ out.d }}/sub; echo 1 > ${{ out.d }}/a; echo 2 > \"${{ out.d }}/sub/b c\"; ln -s a ${{ out.d }}/l",
    )
    .output("d", Type::Directory, "idx");
    let made = lab.run("make", &make).await.unwrap();
    assert_eq!(shown(&made[0]), "a=1\n|l=1\n|sub/b c=2\n");
    let take =
        One::command("cat ${{ index.idx }}/a ${{ index.idx }}/sub/*; ls ${{ index.idx }}; echo ${{ index.idx }}")
            .input("index-idx", Type::Directory, made[0].clone())
            .output("o", Type::Text, "stdout");
    assert_eq!(lab.texts("take", &take).await, ["1\n2\na\nl\nsub\nin/index-idx"]);
    let empty = One::command("true").output("d", Type::Directory, "d");
    assert_eq!(lab.texts("empty", &empty).await, [""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn globs_give_one_file_or_all_in_order() {
    let lab = Lab::new().await;
    let one =
        One::command("for i in b a 'c d'; do echo $i > \"$i.txt\"; done; mkdir s; echo x > s/e.txt; echo h > .h.txt")
            .input("n", Type::Text, PortValue::text("[c]*"))
            .output("l", Type::list(Type::File), "*.txt")
            .output("deep", Type::list(Type::File), "**/*.txt")
            .output("one", Type::File, "s/*.txt")
            .output("none", Type::list(Type::File), "${{ n }}*.nope")
            .output("maybe", Type::option(Type::File), "nope");
    let given = lab.texts("k", &one).await;
    assert_eq!(
        given,
        ["a.txt=a\n;b.txt=b\n;c d.txt=c d\n", "a.txt=a\n;b.txt=b\n;c d.txt=c d\n;e.txt=x\n", "e.txt=x\n", "", "null"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_output_is_reported_with_a_hint() {
    let lab = Lab::new().await;
    // All links and names lead to a directory of this test.
    let canary = lab.directory.path().join("canary");
    std::fs::create_dir(&canary).and(std::fs::write(canary.join("bird"), "sings")).unwrap();
    let canary = canary.to_str().unwrap();
    let run = async |key: &str, run: &str, ty: Type, place: &str| {
        let (run, place) = (&run.replace("CANARY", canary), &place.replace("CANARY", canary));
        let told = lab.run(key, &One::command(run).output("o", ty, place)).await.unwrap_err();
        told.replace(lab.home.root.to_str().unwrap(), "STORE")
    };
    let missing = run("missing", "echo > x.bam; mkdir d", Type::File, "y.bam").await;
    assert!(missing.contains("OF0305: output `o` is missing: there is no `y.bam` in the work directory"), "{missing}");
    assert!(missing.contains("what is there: `d/`, `x.bam`") && missing.contains("${{ out.o }}"), "{missing}");
    assert!(missing.contains("work directory: STORE/runs/"), "{missing}");
    let cases = [
        ("many", "touch a.b c.b", Type::File, "*.b", "OF0308: output `o` is one file, but `*.b` matches 2"),
        ("link", "ln -s CANARY/bird o", Type::File, "o", "OF0306: output `o`: `o` is a link that leads out"),
        ("links", "ln -s CANARY o/e", Type::Directory, "o", "is a link that leads out of the work directory"),
        ("loose", "ln -s nowhere o", Type::File, "o", "is a link that leads nowhere"),
        ("fifo", "mkfifo o", Type::File, "o", "is neither a file nor a directory"),
        ("dir", "mkdir o", Type::File, "o", "is declared as a file, but is a directory"),
        ("file", "rmdir o; touch o", Type::Directory, "o", "is declared as a directory, but is a file"),
        ("up", "true", Type::File, "../x", "`../x` leads out of the work directory"),
        ("root", "true", Type::File, "CANARY/bird", "leads out of the work directory"),
        ("in", "true", Type::File, "in/x", "is not a place for outputs"),
        ("int", "echo many", Type::Int, "stdout", "OF0307: output `o` is no int: standard output does not hold one"),
        ("json", "echo '{' > o", Type::Json, "o", "OF0307: output `o` is no json: `o` is not JSON"),
    ];
    for (key, script, ty, place, expected) in cases {
        let told = run(key, script, ty, place).await;
        assert!(told.contains(expected), "{key}: {told}");
    }
    assert_eq!(std::fs::read_to_string(format!("{canary}/bird")).unwrap(), "sings");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_tells_its_status_its_last_lines_and_where_to_look() {
    let lab = Lab::new().await;
    let told = lab.run("k", &One::command("seq 1 100; echo oops >&2; touch left; exit 3")).await.unwrap_err();
    assert!(told.contains("OF0301: it ended with exit status 3"), "{told}");
    assert!(told.contains("…\n82\n") && told.contains("100\noops"), "{told}");
    let work = told.split("work directory: ").nth(1).unwrap().lines().next().unwrap().trim();
    assert!(std::path::Path::new(work).join("left").exists(), "{work}");
    let handle = lab.engine.find("k").await.unwrap();
    let log = std::fs::read_to_string(lab.home.log(handle.id(), "/step")).unwrap();
    assert!(log.starts_with("1\n2\n") && log.ends_with("oops\n"));
    let told = lab.run("pipe", &One::command("false | true")).await.unwrap_err();
    assert!(told.contains("exit status 1"), "{told}");
    let told = lab.run("signal", &One::command("kill -SEGV $$")).await.unwrap_err();
    assert!(told.contains("OF0302: it was ended by signal 11 (SEGV)"), "{told}");
    let told = lab.run("absent", &One::command("no-such-program --x")).await.unwrap_err();
    assert!(told.contains("OF0303: `no-such-program` was not found on the PATH"), "{told}");
    let told = lab.run("unset", &One::command("echo $nope; true")).await.unwrap_err();
    assert!(told.contains("nope: unbound variable"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_that_is_an_output_is_kept_whole_or_ended_when_it_is_too_long() {
    let lab = Lab::new().await;
    let output = |script: &str| One::command(script).output("o", Type::Text, "stdout");
    let long = lab.texts("long", &output("head -c 3000000 /dev/zero | tr '\\0' x; echo aside >&2; echo y")).await;
    assert!(long[0].len() == 3_000_001 && long[0].ends_with("xy") && !long[0].contains('a'), "{}", long[0].len());
    let left = lab.texts("left", &output("printf a; (sleep 100; printf b) & printf c")).await;
    assert_eq!(left, ["ac"], "what is left behind is not waited for");
    // The command would never end by itself, and fill the disk.
    let told = lab.run("endless", &output("echo begun >&2; yes; echo ended")).await.unwrap_err();
    assert!(told.contains("OF0307: it wrote more than 16777216 bytes to its standard output"), "{told}");
    assert!(told.contains("hint: declare a file") && told.contains("its last lines:\nbegun"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_of_a_failed_attempt_goes_with_the_next() {
    let lab = Lab::new().await;
    let one = One::command("echo $ONCEFLOW_ATTEMPT ${{ attempt }} > n; test ${{ attempt }} = 3; mv n ${{ out.o }}")
        .output("o", Type::Text, "o")
        .change(|spec| spec.retry = Retry { attempts: 3, backoff_ms: 1, backoff_ms_max: 1 });
    assert_eq!(lab.texts("k", &one).await, ["3 3"]);
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_small_declared_and_keeps_secrets_out_of_all_that_is_told() {
    let lab = Lab::new().await;
    // Tests share one environment; this name is only this test's.
    let one = |script: &str| {
        let mut command = command(script, &["stdout"]);
        command.env = BTreeMap::from([(String::from("GREETING"), text("hi ${{ who }}"))]);
        command.secrets = vec!["CARGO_PKG_NAME".into()];
        let mut one = One::new(Action::Command(command)).input("who", Type::Text, PortValue::text("a 'b'"));
        one.outputs.push(("o", Type::Text));
        one
    };
    let given = lab.texts("env", &one("env | cut -d= -f1 | sort | tr '\\n' ' '; echo \"$GREETING\"")).await;
    let names: Vec<_> = given[0].split(' ').collect();
    for wanted in
        ["GREETING", "HOME", "ONCEFLOW_ADDRESS", "ONCEFLOW_ATTEMPT", "ONCEFLOW_KEY", "PATH", "SHELL", "TMPDIR"]
    {
        assert!(names.contains(&wanted), "{given:?}");
    }
    assert!(!given[0].contains("CARGO_MANIFEST_DIR") && !given[0].contains("_onceflow"), "{given:?}");
    assert!(given[0].ends_with("hi a 'b'"));
    let script =
        "echo \"key ${{ secrets.CARGO_PKG_NAME }} $CARGO_PKG_NAME\" >&2; printf onceflow- >&2; printf exec >&2; exit 1";
    let told = lab.run("secret", &one(script)).await.unwrap_err();
    assert!(told.contains("key *** ***") && !told.contains("onceflow-exec"), "{told}");
    let handle = lab.engine.find("secret").await.unwrap();
    let log = std::fs::read_to_string(lab.home.log(handle.id(), "/step")).unwrap();
    assert_eq!(log, "key *** ***\n***");
    let mut absent = one("true");
    if let Action::Command(command) = &mut absent.action {
        command.secrets = vec!["NO_SUCH_SECRET_HERE".into()];
    }
    let told = lab.run("absent", &absent).await.unwrap_err();
    assert!(told.contains("OF0310: secret `NO_SUCH_SECRET_HERE` is not in the environment"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_was_changed_is_told() {
    let lab = Lab::new().await;
    let one = One::command("f=$(readlink -f ${{ f }}); chmod u+w \"$f\"; echo more >> \"$f\"").input(
        "f",
        Type::File,
        lab.file("a.txt", "x".repeat(100_000)),
    );
    let told = lab.run("k", &one).await.unwrap_err();
    assert!(told.contains("OF0309: the step changed its input `in/a.txt`"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_small_input_is_not_seen_by_other_steps() {
    let lab = Lab::new().await;
    let small = || lab.file("a.txt", "one");
    let reads = || One::command("cat ${{ f }} > o").input("f", Type::File, small()).output("t", Type::Text, "o");
    assert_eq!(lab.texts("before", &reads()).await, ["one"]);
    // The command fails as well; the changed input must be reported nevertheless.
    let spoils = One::command("chmod u+w ${{ f }}; echo two > ${{ f }}; false").input("f", Type::File, small());
    let told = lab.run("spoils", &spoils).await.unwrap_err();
    assert!(told.contains("OF0309: the step changed its input `in/a.txt`"), "{told}");
    assert_eq!(lab.texts("after", &reads()).await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_type_are_read_and_written() {
    let lab = Lab::new().await;
    let ty = Type::Record([(String::from("a"), Type::list(Type::Int)), (String::from("b"), Type::Text)].into());
    let value = PortValue::from_json(serde_json::json!({"a": [1, 2], "b": "x\"y"}), &ty).unwrap();
    let mut one =
        One::command("echo ${{ r }} > o; echo ${{ size(r.a) * n }} > n; echo ${{ f }} ${{ t }} ${{ none }} | tee l")
            .input("r", ty.clone(), value)
            .input("n", Type::Int, PortValue::Int(21))
            .input("f", Type::Float, PortValue::Float(1.0))
            .input("t", Type::Bool, PortValue::Bool(true))
            .input("none", Type::option(Type::Text), PortValue::Null)
            .output("r2", ty, "o")
            .output("n2", Type::Int, "n")
            .output("l", Type::list(Type::Text), "l");
    one.outputs.push(("j", Type::Text));
    if let Action::Command(command) = &mut one.action {
        command.outputs.push(Capture::Stdout);
    }
    assert_eq!(lab.texts("k", &one).await, [r#"{"a":[1,2],"b":"x\"y"}"#, "42", "1.0 true", "1.0 true"]);
}
