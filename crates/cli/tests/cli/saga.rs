//! Orders over a real HTTP server that counts, while the tool is killed at random: every charge once per key, every
//! failed order is compensated once, and no other.

use crate::chaos;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

const ORDERS: usize = 12;

const FLOW: &str = r#"
flow: order
inputs: { shop: text, order: int, cents: int }
steps:
  charge:
    http:
      method: POST
      url: ${{ inputs.shop }}/charge/${{ inputs.order }}
      json: { cents: "${{ inputs.cents }}" }
    out: { receipt: { text: body.receipt } }
    undo:
      http: { method: POST, url: "${{ inputs.shop }}/refund/${{ inputs.order }}" }
    retry: { attempts: 3, backoff: 10ms }
  pack:
    run: printf 'order %s, receipt %s\n' ${{ inputs.order }} ${{ charge.receipt }} > ${{ out.label }}
    out: { label: file }
  ship:
    http:
      method: POST
      url: ${{ inputs.shop }}/ship/${{ inputs.order }}
      file: pack.label
    out: { parcel: { text: body.parcel } }
outputs: { parcel: ship.parcel }
"#;

/// Requests to the shop: by path, the keys, and the count of each.
#[derive(Default)]
struct Ledger(Mutex<BTreeMap<String, BTreeMap<String, usize>>>);

impl Ledger {
    fn keys(&self, path: &str) -> BTreeSet<String> {
        let ledger = self.0.lock().expect("the ledger");
        ledger.get(path).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }
}

/// Starts a shop that charges, ships (not every third order) and refunds. Rings for every request it has answered.
fn shop(ledger: Arc<Ledger>, bell: Sender<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (ledger, bell) = (ledger.clone(), bell.clone());
            // A broken connection is one more client that was killed.
            std::thread::spawn(move || connection.and_then(|connection| serve(&connection, &ledger, &bell)));
        }
    });
    address
}

fn serve(connection: &TcpStream, ledger: &Ledger, bell: &Sender<()>) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let (mut key, mut len) = (None, 0);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => key = Some(value.to_owned()),
                "content-length" => len = value.parse().expect("a length"),
                _ => {}
            }
        }
        reader.read_exact(&mut vec![0; len])?;
        let path = request.split(' ').nth(1).expect("a path").to_owned();
        let key = key.expect("every request carries a key");
        *ledger.0.lock().expect("the ledger").entry(path.clone()).or_default().entry(key.clone()).or_default() += 1;
        let order: usize = path.rsplit('/').next().and_then(|order| order.parse().ok()).expect("an order");
        let (status, body) = match path.split('/').nth(1) {
            Some("charge") => ("200 OK", format!("{{\"receipt\": \"r-{key}\"}}")),
            Some("ship") if order.is_multiple_of(3) => {
                ("422 Unprocessable Entity", String::from("{\"why\": \"no such street\"}"))
            }
            Some("ship") => ("200 OK", format!("{{\"parcel\": \"p-{order}\"}}")),
            Some("refund") => ("200 OK", String::from("{}")),
            _ => ("404 Not Found", String::from("{}")),
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        (&*connection).write_all(format!("{head}{body}").as_bytes())?;
        let _nobody_listens = bell.send(());
    }
}

/// Runs an order until it has ended, killing the process after a random number of requests a few times.
fn order(directory: &Path, shop: &str, number: usize, bell: &Receiver<()>, random: &mut chaos::Random) -> Option<i32> {
    let key = format!("order-{number}");
    let arguments = ["run", "flow.yaml", "--key", &key, "-i", &format!("shop={shop}"), "-i"].map(String::from);
    let rest = [format!("order={number}"), "-i".into(), "cents=250".into(), "--out".into(), format!("out-{number}")];
    for kill in 0.. {
        if kill > 0 && is_over(directory, &key) {
            return None;
        }
        while bell.try_recv().is_ok() {}
        let mut command = chaos::onceflow(directory);
        command.args(arguments.iter().chain(&rest)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tool starts");
        if kill < 3 {
            for _ in 0..random.below(4) {
                // The tool may end before it has sent so many requests.
                while bell.recv_timeout(std::time::Duration::from_millis(20)).is_err() {
                    if child.try_wait().expect("its state").is_some() {
                        break;
                    }
                }
            }
            child.kill().expect("a kill");
        }
        let output = child.wait_with_output().expect("its end");
        if let Some(code) = output.status.code() {
            assert!([0, 1].contains(&code), "order {number} ended {code}: {}", String::from_utf8_lossy(&output.stderr));
            return Some(code);
        }
    }
    unreachable!("the loop ends by returning")
}

/// The run has ended for good; starting it again would make another one.
fn is_over(directory: &Path, key: &str) -> bool {
    let found = chaos::json(directory, &["ls".into(), "--json".into()]);
    let runs = found.as_array().expect("a list of runs").iter();
    let status = runs.filter(|run| run["key"] == key).map(|run| run["status"].as_str().unwrap_or_default().to_owned());
    status.into_iter().any(|status| ["done", "undone", "failed and undone"].contains(&status.as_str()))
}

#[test]
fn every_order_is_charged_once_and_every_failed_one_is_refunded_once_whatever_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("flow.yaml"), FLOW).expect("the flow");
    let (ledger, (ring, bell)) = (Arc::new(Ledger::default()), channel());
    let shop = shop(ledger.clone(), ring);
    let mut random = chaos::Random(5);
    for number in 0..ORDERS {
        order(directory.path(), &shop, number, &bell, &mut random);
        let fails = number.is_multiple_of(3);
        let charges = ledger.keys(&format!("/charge/{number}"));
        assert_eq!(charges.len(), 1, "order {number} was charged under {charges:?}");
        let refunds = ledger.keys(&format!("/refund/{number}"));
        assert_eq!(refunds.len(), usize::from(fails), "order {number} was refunded under {refunds:?}");
        assert!(!directory.path().join(format!("out-{number}")).exists(), "text is no file");
    }
    chaos::nothing_is_left(directory.path());
}
