//! What a store promises of its files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n0000";
const ORIGIN: Origin<'_> = Origin { prompt: "p", model: "m", provider: "mcp:s" };

fn store(root: &Path, limits: Limits) -> Store {
    Store::with_limits(root.join("new/store"), limits)
}

fn day(store: &Store) -> PathBuf {
    fs::read_dir(store.root()).unwrap().next().unwrap().unwrap().path()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

fn age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[cfg(unix)]
#[test]
fn folders_and_files_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    store.put_image(PNG, ORIGIN).unwrap();
    store.put(Kind::Text, b"x", None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(store.root()), mode(&day(&store))), (0o700, 0o700));
    assert_eq!(names(&day(&store)).len(), 3);
    assert!(names(&day(&store)).iter().all(|name| mode(&day(&store).join(name)) == 0o600));
}

#[test]
fn the_same_thing_is_kept_once_and_another_prompt_makes_another_image() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    let first = store.put_image(PNG, ORIGIN).unwrap();
    assert_eq!(store.put_image(PNG, ORIGIN).unwrap(), first);
    let other = store.put_image(PNG, Origin { prompt: "q", ..ORIGIN }).unwrap();
    assert_ne!(other.id, first.id);
    let blob = store.put(Kind::Blob, b"x", Some("text/plain")).unwrap();
    assert_eq!(store.put(Kind::Blob, b"x", Some("text/plain")).unwrap(), blob);
    assert_eq!(names(&day(&store)).len(), 5);
}

#[test]
fn what_stands_there_already_is_never_overwritten_nor_followed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    let path = store.put(Kind::Blob, b"x", None).unwrap();
    fs::write(&path, "changed by the user").unwrap();
    let second = store.put(Kind::Blob, b"x", None).unwrap();
    assert_ne!(path, second);
    assert_eq!(fs::read_to_string(&path).unwrap(), "changed by the user");
    #[cfg(unix)]
    {
        let outside = folder.path().join("outside");
        fs::write(&outside, "x").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&outside, &path).unwrap();
        // Even a link to the very same content is not taken for the file.
        assert_eq!(store.put(Kind::Blob, b"x", None).unwrap(), second);
        let absent = folder.path().join("absent");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&absent, &path).unwrap();
        store.put(Kind::Blob, b"x", None).unwrap();
        assert!(!absent.exists());
    }
}

#[cfg(unix)]
#[test]
fn a_link_in_place_of_the_days_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    store.put(Kind::Blob, b"x", None).unwrap();
    let today = day(&store);
    let outside = folder.path().join("outside");
    fs::rename(&today, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &today).unwrap();
    assert!(store.put(Kind::Blob, b"y", None).is_err());
    store.sweep();
    assert_eq!(names(&outside).len(), 1);
}

#[test]
fn only_old_files_of_the_stores_own_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    let image = store.put_image(PNG, ORIGIN).unwrap();
    let young = store.put(Kind::Blob, b"young", None).unwrap();
    let old = store.put(Kind::Text, b"old", None).unwrap();
    let changed = store.put(Kind::Blob, b"changed", None).unwrap();
    fs::write(&changed, "by the user").unwrap();
    let unrecorded = store.put_image(b"GIF89a", ORIGIN).unwrap();
    fs::remove_file(Path::new(&unrecorded.path).with_extension("json")).unwrap();
    let today = day(&store);
    let foreign =
        ["note.txt", "img_0123456789ab.png", "img_0123456789abcdef.png", "text_0123456789abcdef.txt"];
    for name in foreign {
        fs::write(today.join(name), "old").unwrap();
    }
    let partial = today.join(format!("{}x.tmp", file::PARTIAL));
    fs::write(&partial, "").unwrap();
    for name in names(&today) {
        age(&today.join(name), 40);
    }
    age(Path::new(&young), 20);
    store.sweep();
    assert!(!Path::new(&old).exists() && !partial.exists());
    assert!(!Path::new(&image.path).exists() && !Path::new(&image.path).with_extension("json").exists());
    assert!(
        Path::new(&young).exists() && Path::new(&changed).exists() && Path::new(&unrecorded.path).exists()
    );
    assert!(foreign.iter().all(|name| today.join(name).exists()));
}

#[test]
fn the_oldest_make_room_and_what_cannot_go_makes_the_folder_full() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits { total: 100, ..Limits::default() });
    let first = store.put(Kind::Blob, &[1; 40], None).unwrap();
    let second = store.put(Kind::Blob, &[2; 40], None).unwrap();
    age(Path::new(&first), 2);
    age(Path::new(&second), 1);
    store.put(Kind::Blob, &[3; 40], None).unwrap();
    assert!(!Path::new(&first).exists() && Path::new(&second).exists());
    assert_eq!(store.put(Kind::Blob, &[4; 101], None), Err(Refused::Full));
    assert!(Path::new(&second).exists());
    // What was stored just now stays.
    age(Path::new(&second), 0);
    assert_eq!(
        Store::with_limits(store.root(), store.limits()).put(Kind::Blob, &[4; 40], None),
        Err(Refused::Full)
    );
    // Whatever else was made under such names stays, and counts.
    let foreign = day(&store).join("blob_0123456789abcdef.bin");
    fs::write(&foreign, [5; 90]).unwrap();
    let fresh = Store::with_limits(store.root(), store.limits());
    assert_eq!(fresh.put(Kind::Blob, &[6; 40], None), Err(Refused::Full));
    assert!(foreign.exists());
    fs::remove_file(foreign).unwrap();
    for name in names(&day(&store)) {
        age(&day(&store).join(name), 1);
    }
    fresh.sweep();
    assert!(fresh.put(Kind::Blob, &[6; 40], None).is_ok());
}

#[test]
fn a_sweep_removes_the_folders_that_it_empties() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    let path = store.put(Kind::Blob, b"x", None).unwrap();
    let (today, past) = (day(&store), store.root().join("2020-01-01"));
    let moved = past.join(Path::new(&path).file_name().unwrap());
    fs::rename(today, &past).unwrap();
    age(&moved, 40);
    store.sweep();
    assert!(!past.exists() && store.root().exists());
}

#[test]
fn many_writers_of_one_thing_agree() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(store(folder.path(), Limits::default()));
    let writers: Vec<_> = (0..8)
        .map(|n| {
            // As if each were a process of its own.
            let store = Store::new(store.root());
            thread::Builder::new()
                .spawn(move || {
                    (0..20).map(|m| store.put(Kind::Blob, &[n % 2, m], None).unwrap()).collect::<Vec<_>>()
                })
                .unwrap()
        })
        .collect();
    let paths: Vec<Vec<String>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert!(paths.iter().step_by(2).all(|all| *all == paths[0]));
    assert_eq!(names(&day(&store)).len(), 40);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_whose_name_a_model_cannot_be_told_gets_no_files() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")));
    assert!(store.put(Kind::Blob, b"x", None).is_err() && store.put_image(PNG, ORIGIN).is_err());
    assert!(names(&day(&store)).is_empty());
}

#[test]
fn images_are_told_by_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), Limits::default());
    assert_eq!(store.put_image(b"plain", ORIGIN), Err(Refused::NoImage));
    assert_eq!(store.put_image(b"%PDF-1.7", ORIGIN), Err(Refused::NoImage));
    assert!(!store.root().exists());
}

#[test]
fn the_default_folder_is_the_users() {
    let root = Store::default_root().unwrap();
    assert!(root.is_absolute() && (root.ends_with("generated") || root.ends_with("artifacts")));
}
