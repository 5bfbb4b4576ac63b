//! Tests that nothing outside of a directory is reached through it, whatever is put there.

use super::*;
use proptest::prelude::*;
use std::{fs, os::unix::fs::PermissionsExt, os::unix::fs::symlink};

/// A directory to work in, and one beside it that nothing may change.
struct Yard {
    _directory: tempfile::TempDir,
    root: PathBuf,
    canary: PathBuf,
}

impl Yard {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (root, canary) = (directory.path().join("root"), directory.path().join("canary"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(canary.join("deep")).unwrap();
        fs::write(canary.join("bird"), "sings").unwrap();
        fs::write(canary.join("deep/bird"), "sings").unwrap();
        Yard { _directory: directory, root, canary }
    }

    fn dir(&self) -> Dir {
        Dir::open(&self.root).unwrap()
    }

    fn sings(&self) -> bool {
        let song = |path| fs::read_to_string(self.canary.join(path)).is_ok_and(|song| song == "sings");
        let count = |path: &Path| fs::read_dir(path).unwrap().count();
        song("bird") && song("deep/bird") && count(&self.canary) == 2 && count(&self.canary.join("deep")) == 1
    }
}

#[test]
fn links_are_removed_and_what_they_lead_to_stays() {
    let yard = Yard::new();
    fs::create_dir_all(yard.root.join("a/b")).unwrap();
    symlink(&yard.canary, yard.root.join("a/b/link")).unwrap();
    symlink(&yard.canary, yard.root.join("link")).unwrap();
    fs::hard_link(yard.canary.join("bird"), yard.root.join("a/hard")).unwrap();
    let held = yard.dir();
    assert!(held.child("link").unwrap_err().to_string().contains("root/link is a link"));
    remove_beneath(&yard.root, Path::new("link/deep")).unwrap_err();
    remove_beneath(&yard.root, Path::new("link")).unwrap();
    held.empty(&[]).unwrap();
    assert_eq!(held.entries().unwrap(), []);
    assert!(yard.sings());
}

#[test]
fn a_directory_whose_name_passed_to_a_link_is_emptied_and_the_link_is_not_followed() {
    let yard = Yard::new();
    let (parent, work) = (yard.dir(), yard.dir().create("work").unwrap());
    fs::write(yard.root.join("work/own"), "").unwrap();
    assert!(work.is_at(&parent, "work"));
    fs::rename(yard.root.join("work"), yard.root.join("moved")).unwrap();
    symlink(&yard.canary, yard.root.join("work")).unwrap();
    assert!(!work.is_at(&parent, "work"));
    assert!(work.is_at(&parent, "moved"));
    work.empty(&[]).unwrap();
    assert!(fs::read_dir(yard.root.join("moved")).unwrap().next().is_none());
    assert!(yard.sings());
}

#[test]
fn a_tree_deeper_than_a_path_can_be_and_without_rights_is_removed() {
    let yard = Yard::new();
    let mut at = yard.dir().create("deep").unwrap();
    for _ in 0..300 {
        at.create_file("file").unwrap();
        at = at.create("a-name-that-makes-the-path-long").unwrap();
    }
    fs::create_dir_all(yard.root.join("shut/in")).unwrap();
    fs::write(yard.root.join("shut/in/x"), "").unwrap();
    fs::set_permissions(yard.root.join("shut/in"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(yard.root.join("shut"), fs::Permissions::from_mode(0o500)).unwrap();
    yard.dir().empty(&[]).unwrap();
    assert_eq!(yard.dir().entries().unwrap(), []);
}

#[test]
fn paths_are_resolved_below_the_directory_or_not_at_all() {
    let yard = Yard::new();
    fs::create_dir_all(yard.root.join("a/b")).unwrap();
    fs::write(yard.root.join("a/b/file"), "").unwrap();
    let absolute = yard.root.join("a/b/file");
    let outside = yard.canary.join("bird");
    let links: [(&str, &Path); 9] = [
        ("near", Path::new("a/b/file")),
        ("a/up", Path::new("../a/b")),
        ("absolute", &absolute),
        ("twice", Path::new("a/up/file")),
        ("outside", &outside),
        ("above", Path::new("../canary/bird")),
        ("itself", Path::new(".")),
        ("loop", Path::new("loop")),
        ("nothing", Path::new("a/nothing")),
    ];
    for (name, target) in links {
        symlink(target, yard.root.join(name)).unwrap();
    }
    let dir = yard.dir();
    let found = |path: &str| match dir.resolve(Path::new(path), &[&yard.root]) {
        Ok(spot) => spot.path.display().to_string(),
        Err(Astray::Out) => String::from("out"),
        Err(Astray::Nowhere) => String::from("nowhere"),
        Err(Astray::Absent) => String::from("absent"),
        Err(Astray::Io(error)) => error.to_string(),
    };
    for path in ["near", "a/b/file", "absolute", "twice", "a/up/file"] {
        assert_eq!(found(path), "a/b/file", "{path}");
    }
    assert_eq!([found("a/up"), found("a")], ["a/b", "a"]);
    assert_eq!(["outside", "above", "itself"].map(found), ["out"; 3]);
    assert_eq!(["loop", "nothing", "near/x"].map(found), ["nowhere"; 3]);
    assert_eq!(["none", "a/none", "a/b/file/x"].map(found), ["absent"; 3]);
    assert!(found("../canary").contains("leads elsewhere"));
}

#[test]
fn a_fifo_or_a_socket_is_refused_without_blocking() {
    let yard = Yard::new();
    rustix::fs::mknodat(rustix::fs::CWD, yard.root.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(yard.root.join("socket")).unwrap();
    fs::create_dir(yard.root.join("dir")).unwrap();
    let why = |name: &str| yard.dir().open_file(name).unwrap_err().to_string();
    assert!(why("fifo").contains("root/fifo is a FIFO, not a regular file"), "{}", why("fifo"));
    assert!(why("socket").contains("is a socket") && why("dir").contains("directory"), "{}", why("dir"));
    assert!(open_regular(&yard.root.join("fifo")).is_err());
}

#[test]
fn a_directory_is_made_for_one_and_locked_by_one() {
    let yard = Yard::new();
    let one = yard.dir().create("a").unwrap();
    assert_eq!(yard.dir().create("a").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(one.try_lock().unwrap());
    assert!(!yard.dir().child("a").unwrap().try_lock().unwrap());
    drop(one);
    assert!(yard.dir().child("a").unwrap().try_lock().unwrap());
    yard.dir().create("b").unwrap();
    assert_eq!(yard.dir().rename("a", &yard.dir(), "b").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    for name in ["", ".", "..", "a/b", "/", "a/"] {
        assert!(yard.dir().create(name).is_err(), "{name}");
    }
}

/// An action of a step on a tree. Names are few, so that they collide.
#[derive(Clone, Debug)]
enum Deed {
    Make(usize),
    Write(usize),
    Move(usize, usize),
    LinkOut(usize),
    LinkIn(usize, usize),
    HardLink(usize),
    Shut(usize),
}

const SPOTS: [&str; 8] = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/b/a", "b/a/a"];

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let spot = || 0..SPOTS.len();
    let deed = prop_oneof![
        spot().prop_map(Deed::Make),
        spot().prop_map(Deed::Write),
        (spot(), spot()).prop_map(|(from, to)| Deed::Move(from, to)),
        spot().prop_map(Deed::LinkOut),
        (spot(), spot()).prop_map(|(from, to)| Deed::LinkIn(from, to)),
        spot().prop_map(Deed::HardLink),
        spot().prop_map(Deed::Shut),
    ];
    prop::collection::vec(deed, 1..12)
}

/// Actions use paths that have no link in them, so that none of them itself leads to the canary.
fn doing(yard: &Yard, deed: &Deed) {
    let at = |spot: usize| -> Option<PathBuf> {
        let parent = yard.dir().beneath(Path::new(SPOTS[spot]).parent()?).ok()?;
        Some(parent.path().join(Path::new(SPOTS[spot]).file_name()?))
    };
    let each = |deed: &Deed| -> Option<io::Result<()>> {
        Some(match deed {
            Deed::Make(spot) => fs::create_dir(at(*spot)?),
            Deed::Write(spot) => File::create_new(at(*spot)?).map(drop),
            Deed::Move(from, to) => fs::rename(at(*from)?, at(*to)?),
            Deed::LinkOut(spot) => symlink(&yard.canary, at(*spot)?),
            Deed::LinkIn(from, to) => symlink(yard.root.join(SPOTS[*to]), at(*from)?),
            Deed::HardLink(spot) => fs::hard_link(yard.canary.join("bird"), at(*spot)?),
            Deed::Shut(spot) => match fs::symlink_metadata(at(*spot)?).ok()?.is_dir() {
                true => fs::set_permissions(at(*spot)?, fs::Permissions::from_mode(0o000)),
                false => return None,
            },
        })
    };
    // Many of the actions make no sense.
    let _tried = each(deed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_tampered_tree_is_emptied_and_nothing_outside_changes(deeds in deeds()) {
        let yard = Yard::new();
        let held = yard.dir();
        deeds.iter().for_each(|deed| doing(&yard, deed));
        for spot in SPOTS {
            if let Ok(found) = held.resolve(Path::new(spot), &[&yard.root]) {
                prop_assert!(kind(&found.dir.stat(&found.name).unwrap()) != FileType::Symlink);
                prop_assert!(held.beneath(found.path.parent().unwrap()).unwrap().id() == found.dir.id());
            }
        }
        held.empty(&[]).unwrap();
        prop_assert_eq!(held.entries().unwrap(), []);
        prop_assert!(yard.sings());
    }
}
