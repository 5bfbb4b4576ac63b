//! Scripts, expressions and HTTP calls, through a real engine.

use crate::support;

use onceflow_core::model::{Retry, Type};
use onceflow_exec::{
    action::{self, Action, Capture, Expr, Http, HttpBody, JsonTemplate, Script},
    value::PortValue,
};
use std::collections::BTreeMap;
use support::{Lab, One, text};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

fn script(code: &str, outputs: Vec<Capture>) -> Action {
    let interpreter = vec!["python3".into(), "-S".into()];
    Action::Script(Script { interpreter, code: code.into(), outputs, env: BTreeMap::new(), secrets: vec![] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_gets_json_and_gives_json_and_files() {
    let lab = Lab::new().await;
    let code = "import json, sys\nx = json.load(sys.stdin)\nopen(x['out']['f'], 'w').write('made')\n\
                text = open(x['inputs']['a']).read()\nprint('talk', file=sys.stderr)\n\
                open('other', 'w').write(text)\nprint(json.dumps({'n': len(text) + x['n'], 'g': 'other', 'l': [1, 2]}))\n";
    let json = |source: &str| Capture::Json(source.into());
    let mut one =
        One::new(script(code, vec![json("n"), Capture::Path(text("f.txt")), json("g"), json("l.map(x, x * 2)")]))
            .input("inputs-a", Type::File, lab.file("a b.txt", "abc"))
            .input("n", Type::Int, PortValue::Int(4));
    one.outputs = vec![("n", Type::Int), ("f", Type::File), ("g", Type::File), ("l", Type::list(Type::Int))];
    assert_eq!(lab.texts("k", &one).await, ["7", "f.txt=made", "other=abc", "2;4"]);
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_does_not_do_so_is_told_how_to() {
    let lab = Lab::new().await;
    let run = async |key: &str, code: &str, source: &str| {
        let mut one = One::new(script(code, vec![Capture::Json(source.into())]));
        one.outputs = vec![("n", Type::Int)];
        lab.run(key, &one).await.unwrap_err()
    };
    let told = run("text", "print('hello'); print('world')", "n").await;
    assert!(told.contains("OF0314: what was written to standard output is not JSON") && told.contains("hello\nworld"));
    let told = run("absent", "print('{}')", "n").await;
    assert!(told.contains("OF0307: output `n` could not be read") && told.contains("nothing is called `n`"), "{told}");
    let told = run("type", "print('{\"n\": \"x\"}')", "n").await;
    assert!(told.contains("int wanted, but \"x\" (text) found"), "{told}");
    let told = run("out", "print('{\"n\": 1}'); raise SystemExit(2)", "n").await;
    assert!(told.contains("OF0301: it ended with exit status 2"), "{told}");
    let mut one = One::new(script("", vec![]));
    if let Action::Script(script) = &mut one.action {
        script.interpreter = vec!["no-such-python".into()];
    }
    let told = lab.run("interpreter", &one).await.unwrap_err();
    assert!(told.contains("OF0303: `no-such-python` was not found on the PATH"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_compute_and_pass_files_on() {
    let lab = Lab::new().await;
    let files = PortValue::List(vec![lab.file("a.txt", "A".repeat(9000)), lab.file("b.fq", "B")]);
    let outputs =
        vec!["fs.filter(f, f.ext == 'fq')".into(), "fs[0]".into(), "size(fs) + 1".into(), "n > 2 ? 'x' : null".into()];
    let mut one = One::new(Action::Expr(Expr { outputs })).input("fs", Type::list(Type::File), files).input(
        "n",
        Type::Int,
        PortValue::Int(2),
    );
    one.outputs =
        vec![("l", Type::list(Type::File)), ("f", Type::File), ("n", Type::Int), ("o", Type::option(Type::Text))];
    let given = lab.texts("k", &one).await;
    assert_eq!((given[0].as_str(), given[1].len(), &given[2][..], &given[3][..]), ("b.fq=B", 9006, "3", "null"));
    assert_eq!(lab.texts("again", &one).await, given, "the inputs are still there");
    let mut one =
        One::new(Action::Expr(Expr { outputs: vec!["n + 'x'".into()] })).input("n", Type::Int, PortValue::Int(2));
    one.outputs = vec![("o", Type::Int)];
    let told = lab.run("wrong", &one).await.unwrap_err();
    assert!(told.contains("OF0311: `n + 'x'` cannot be computed") && told.contains("n is int"), "{told}");
}

/// Starts a server that gives these answers one after another, and passes on the requests it receives.
async fn server(answers: Vec<&'static str>) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !is_whole(&asked) {
                let mut buffer = [0; 4096];
                let bytes = stream.read(&mut buffer).await.unwrap();
                asked.extend_from_slice(&buffer[..bytes]);
            }
            tell.send(String::from_utf8(asked).unwrap()).unwrap();
            let (status, body) = answer.split_once('|').unwrap();
            let head = format!(
                "HTTP/1.1 {status}\r\nX-Kind: some\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
    (address, told)
}

fn is_whole(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let len = head
        .to_lowercase()
        .split("content-length: ")
        .nth(1)
        .map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
    body.len() >= len
}

fn http(url: &str, outputs: Vec<Capture>) -> Http {
    Http {
        method: "post".into(),
        url: text(url),
        headers: vec![("Authorization".into(), text("Bearer ${{ secrets.CARGO_PKG_NAME }}"))],
        body: Some(HttpBody::Json(JsonTemplate::Record(vec![("cents".into(), JsonTemplate::Text(text("${{ n }}")))]))),
        key_header: action::key_header(),
        accept: action::accept(),
        outputs,
        secrets: vec!["CARGO_PKG_NAME".into()],
    }
}

fn call(address: &str, http: Http) -> One {
    One::new(Action::Http(http)).input("base", Type::Text, PortValue::text(address)).input(
        "n",
        Type::Int,
        PortValue::Int(7),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_made_with_its_key_and_its_answer_is_read() {
    let lab = Lab::new().await;
    let (address, mut asked) = server(vec!["500 Oops|later", "200 OK|{\"id\": \"c1\", \"xs\": [1, 2]}"]).await;
    let json = |source: &str| Capture::Json(source.into());
    let outputs = vec![
        json("body.id"),
        json("size(body.xs)"),
        json("headers['x-kind']"),
        json("status"),
        Capture::Path(text("answer.json")),
    ];
    let mut one = call(&address, http("${{ base }}/charge/${{ 'a/b' }}", outputs))
        .change(|spec| spec.retry = Retry { attempts: 2, backoff_ms: 1, backoff_ms_max: 1 });
    one.outputs = vec![("id", Type::Text), ("n", Type::Int), ("k", Type::Text), ("s", Type::Int), ("f", Type::File)];
    let given = lab.texts("k", &one).await;
    assert_eq!(given, ["c1", "2", "some", "200", "answer.json={\"id\": \"c1\", \"xs\": [1, 2]}"]);
    let (first, second) = (asked.recv().await.unwrap(), asked.recv().await.unwrap());
    assert!(first.starts_with("POST /charge/a%2Fb HTTP/1.1\r\n") && first.ends_with("{\"cents\":7}"), "{first}");
    assert!(first.to_lowercase().contains("authorization: bearer onceflow-exec\r\n"), "{first}");
    let key = |asked: &str| asked.to_lowercase().split("idempotency-key: ").nth(1).unwrap()[..32].to_owned();
    assert_eq!(key(&first), key(&second));
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final_or_not_and_never_tells_a_secret() {
    let lab = Lab::new().await;
    let retry = |one: One| one.change(|spec| spec.retry = Retry { attempts: 2, backoff_ms: 1, backoff_ms_max: 1 });
    let (address, mut asked) = server(vec!["402 No|your token onceflow-exec is bad", "200 OK|1"]).await;
    let told =
        lab.run("final", &retry(call(&address, http("${{ base }}/x?t=${{ secrets.CARGO_PKG_NAME }}", vec![])))).await;
    let told = told.unwrap_err();
    assert!(told.contains("OF0315") && told.contains("was answered with 402") && told.contains("attempt 1"), "{told}");
    assert!(told.contains("your token *** is bad") && !told.contains("onceflow-exec"), "{told}");
    assert!(asked.recv().await.is_some());
    let (address, _asked) = server(vec!["429 Slow|", "503 Busy|"]).await;
    let told = lab.run("passing", &retry(call(&address, http("${{ base }}", vec![])))).await.unwrap_err();
    assert!(told.contains("503") && told.contains("attempt 2"), "{told}");
    let (address, _asked) = server(vec!["200 OK|{\"id\": 5}"]).await;
    let mut one = call(&address, http("${{ base }}", vec![Capture::Json("body.id".into())]));
    one.outputs = vec![("id", Type::Text)];
    let told = lab.run("type", &one).await.unwrap_err();
    assert!(
        told.contains("OF0317") && told.contains("text wanted, but 5 (int) found") && told.contains("{\"id\": 5}"),
        "{told}"
    );
    let told = lab.run("url", &call("not a url", http("${{ base }}", vec![]))).await.unwrap_err();
    assert!(told.contains("`not a url` is no URL"), "{told}");
    let mut broken = http("http://127.0.0.1:1/", vec![]);
    broken.headers = vec![("X".into(), text("${{ 'a\\nb' }}"))];
    let told = lab.run("header", &call("", broken)).await.unwrap_err();
    assert!(told.contains("header `X` cannot hold its value"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_was_asked_nothing() {
    let lab = Lab::new().await;
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let one = call(&format!("http://127.0.0.1:{port}"), http("${{ base }}/x", vec![])).change(|spec| {
        spec.effect = onceflow_core::model::Effect::AtMostOnce;
    });
    let told = lab.run("k", &one).await.unwrap_err();
    assert!(told.contains("OF0316") && told.contains("got no answer"), "an outcome that is known: {told}");
}
