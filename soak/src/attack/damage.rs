//! Damages objects of the store at rest, then asks for work that needs them. A run may fail with an error; it never delivers
//! a wrong byte, and within a few runs it has healed itself.

use crate::{
    Deadline, Findings,
    bed::{Bed, said},
};
use onceflow_store::testing::random::Random;
use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
};

/// `big` is stored as an object; `sum` reads it again whenever `salt` changes.
const FLOW: &str = "flow: damage
keep: 1d
inputs: { seed: int, salt: int }
steps:
  big:
    each: n in [1, 2, 3]
    run: seq ${{ inputs.seed }}${{ n }} 9${{ inputs.seed }}${{ n }}9 > ${{ out.o }}
    out: { o: { file: \"big${{ n }}.txt\" } }
  sum:
    run: cat ${{ big.o }} | cksum > ${{ out.o }}; echo ${{ inputs.salt }} >> ${{ out.o }}
    out: { o: { file: sum.txt } }
outputs: { sums: sum.o, all: big.o }
";

/// Runs that may end with an error before the store must have healed.
const HEALS_WITHIN: usize = 3;

pub(crate) fn attack(bed: &Bed, deadline: Deadline, random: &mut Random) -> anyhow::Result<Findings> {
    let mut found = Findings::default();
    bed.write("damage.yaml", FLOW)?;
    let run = |salt: usize, store: &str, out: &str| {
        let (seed, salt) = ("seed=7".to_owned(), format!("salt={salt}"));
        bed.run(&["run", "damage.yaml", "-i", &seed, "-i", &salt, "--store", store, "--out", out, "-q"])
    };
    run(0, "reference", "right")?;
    let right: Vec<_> = results(bed, "right")?;
    anyhow::ensure!(right.len() == 4, "the flow gives four files, not {}", right.len());
    run(0, "st", "results")?;
    for round in 1.. {
        if round > 3 && deadline.is_over() {
            break;
        }
        let objects: Vec<_> = bed.files("st/blobs")?.into_iter().filter(|path| is_large(path)).collect();
        if objects.is_empty() {
            found.wrong.push("the store holds no object to damage".into());
            break;
        }
        let (object, other) = (random.pick(&objects).clone(), random.pick(&objects).clone());
        let harm = damage(&object, &other, round)?;
        // Every other time the results are gone too, so that they are delivered from the store.
        if random.percent(50) {
            fs::remove_dir_all(bed.path("results"))?;
        }
        found.count("damages", 1);
        let mut healed = false;
        for _ in 0..HEALS_WITHIN {
            let output = run(round, "st", "results")?;
            if output.status.success() {
                healed = true;
                break;
            }
            found.count("runs that said so", 1);
            if found.wrong.len() < 5 && !String::from_utf8_lossy(&output.stderr).contains("OF0") {
                found.wrong.push(format!("after {harm} the run failed without a code: {}", said(&output)));
            }
        }
        if !healed {
            found.wrong.push(format!("after {harm} the store did not heal within {HEALS_WITHIN} runs"));
            break;
        }
        let now = results(bed, "results")?;
        for (name, content) in &right {
            let same = |given: &Vec<u8>| {
                if name == "sum.txt" { first_line(given) == first_line(content) } else { given == content }
            };
            if !now.iter().any(|(other, given)| other == name && same(given)) {
                found.wrong.push(format!("after {harm} the run ended well and delivered a wrong {name}"));
            }
        }
    }
    let fsck = bed.run(&["fsck", "--store", "st", "--deep"])?;
    if !fsck.status.success() {
        found.wrong.push(format!("at the end fsck --deep says {}", said(&fsck)));
    }
    Ok(found)
}

/// One of seven kinds of harm to an object.
fn damage(object: &Path, other: &Path, round: usize) -> anyhow::Result<&'static str> {
    make_writable(object)?;
    let mut bytes = fs::read(object)?;
    let middle = bytes.len() / 2;
    let kind = match round % 7 {
        0 => {
            bytes[middle] ^= 0x20;
            fs::write(object, bytes)?;
            "a flipped bit"
        }
        1 => {
            fs::write(object, &bytes[..middle])?;
            "a truncated object"
        }
        2 => {
            fs::write(object, b"")?;
            "an empty object"
        }
        3 => {
            OpenOptions::new().append(true).open(object)?.write_all(b"more")?;
            "an object that grew"
        }
        4 => {
            fs::remove_file(object)?;
            "a deleted object"
        }
        5 => {
            fs::write(object, fs::read(other)?)?;
            "an object with another's content"
        }
        _ => {
            bytes.fill(b'0');
            fs::remove_file(object)?;
            fs::write(object, bytes)?;
            "an object of zeros in another file"
        }
    };
    Ok(kind)
}

fn make_writable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(Into::into)
}

fn is_large(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 4096)
}

/// Names and contents of all results.
fn results(bed: &Bed, name: &str) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut all = vec![];
    for path in bed.files(name)? {
        let file = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if !file.starts_with('.') {
            all.push((file, fs::read(&path)?));
        }
    }
    all.sort();
    Ok(all)
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == b'\n').next().unwrap_or_default()
}
