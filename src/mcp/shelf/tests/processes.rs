//! Promises of the shelf to several processes: this test binary, started again.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use super::*;

/// Says in which folder [`one_of_several`] works; it does nothing without.
const FOLDER: &str = "NBTOOLS_TEST_SHELF";
/// What it does there.
const ROLE: &str = "NBTOOLS_TEST_SHELF_ROLE";

fn start(folder: &Path, role: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mcp::shelf::tests::processes::one_of_several"])
        .env(FOLDER, folder)
        .env(ROLE, role)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn end(child: Child) {
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{text:?}");
}

/// What a process does that one of the tests below started.
#[test]
fn one_of_several() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let shelf = Shelf::new(folder.into());
    let role = std::env::var(ROLE).unwrap();
    match role.as_str() {
        "finds" => assert!(shelf.load("s", &plain(), NONE).is_some()),
        "finds none" => assert!(shelf.load("s", &plain(), NONE).is_none()),
        "writes for ever" => {
            for n in 0.. {
                shelf.store("s", &plain(), NONE, &about(), &offer(&"z".repeat(100_000 + n)));
            }
        }
        own => {
            for n in 0..60 {
                shelf.store("s", &plain(), NONE, &about(), &offer(&own.repeat(n)));
                assert!(shelf.load("s", &plain(), NONE).is_some(), "it is always whole");
                shelf.store(own, &plain(), NONE, &about(), &offer(own));
                assert_eq!(shelf.load(own, &plain(), NONE).unwrap().offer.tools, offer(own).tools);
                shelf.sweep().unwrap();
            }
        }
    }
}

#[test]
fn processes_share_a_folder_from_the_first_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made by the first");
    let here = std::env::current_dir().unwrap();
    let roles = ["a", "b", "c", "d"];
    let children = roles.map(|role| start(&path, role, &here));
    children.into_iter().for_each(end);
    let shelf = Shelf::new(path.clone());
    for server in roles.iter().chain(&["s"]) {
        assert!(shelf.load(server, &plain(), NONE).is_some(), "all have the same key: {server}");
    }
    assert_eq!(names(&path).len(), 6, "five catalogues and the key, nothing half");
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_the_former_or_the_new() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::new(folder.path().to_owned());
    shelf.store("s", &plain(), NONE, &about(), &offer("former"));
    let here = std::env::current_dir().unwrap();
    for _ in 0..5 {
        let mut child = start(folder.path(), "writes for ever", &here);
        let begun = Instant::now();
        let before = fs::metadata(file(folder.path())).unwrap().modified().unwrap();
        while fs::metadata(file(folder.path())).unwrap().modified().unwrap() == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not write");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(shelf.load("s", &plain(), NONE).is_some());
    }
    for name in names(folder.path()).iter().filter(|name| name.starts_with(".nanobot-tools-partial-")) {
        age(&folder.path().join(name), DAY);
    }
    shelf.sweep().unwrap();
    assert_eq!(names(folder.path()).len(), 2, "a catalogue and the key");
}

#[test]
fn a_process_in_another_directory_has_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let shelf = Shelf::new(folder.path().to_owned());
    shelf.store("s", &plain(), NONE, &about(), &offer("d"));
    end(start(folder.path(), "finds", &std::env::current_dir().unwrap()));
    end(start(folder.path(), "finds none", elsewhere.path()));
}
