//! Tests of the access that other users have to a node's files. Each test acts as another local user, or uses
//! files that such a user left behind.

use super::tests::{HELPER, Scratch, acquire, ask, granted, marked, scratch_node, soon};
use super::{FileNode, SystemWorld, World};
use crate::node::{Cause, Node, PushSender};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

/// The user id 65534, which owns no file here.
const OTHER: u32 = 65_534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns `dir` and everything below it: each path, whether it is a directory, and its mode.
fn modes(dir: &Path) -> Vec<(PathBuf, bool, u32)> {
    let mut all = vec![(dir.to_owned(), true, fs::metadata(dir).unwrap().mode() & 0o7777)];
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(modes(&entry.path())),
            false => all.push((entry.path(), false, entry.metadata().unwrap().mode() & 0o7777)),
        }
    }
    all
}

async fn denied(node: &FileNode) -> String {
    match node.open(PushSender::channel().0).await {
        Err(Cause::Denied(why)) => why.to_string(),
        other => panic!("not refused: {:?}", other.map(|(_, hello)| hello)),
    }
}

/// Waits for the end of the last session, which removes the log. Until then, files of the node may vanish.
async fn log_removed(scratch: &Scratch) {
    let files = ["quorate.db-wal", "quorate.db-shm"].map(|name| scratch.path().join("node").join(name));
    soon("the session has ended", || files.iter().all(|file| !file.exists())).await;
}

/// Returns whether this process is root. The test `name` needs root to act as another user. A test that was
/// skipped must not look like one that passed, so without root this prints a message, and fails if CI=true.
fn is_root(name: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} did not run: it needs root");
    eprintln!("{name} did not run: it needs root");
    false
}

#[tokio::test]
#[ignore = "run by a_node_creates_private_files_whatever_the_umask, in a process of its own"]
async fn umask_helper() {
    let Some(home) = std::env::var_os(HELPER).map(PathBuf::from) else { return };
    let (mut session, _) = marked(&FileNode::new(home.join("above/node"))).await;
    granted(&ask(&mut session, acquire("r", 1, SystemWorld.wall())).await);
    for (path, is_dir, mode) in modes(&home.join("above")) {
        assert_eq!(mode, if is_dir { 0o700 } else { 0o600 }, "{}", path.display());
    }
    assert_eq!(
        modes(&home.join("above")).len(),
        5,
        "two directories, the database, its log, the index of the log"
    );
}

#[tokio::test]
async fn a_node_creates_private_files_whatever_the_umask() {
    for umask in ["000", "022", "077", "0777"] {
        let scratch = Scratch::new();
        let helped = Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "node::file::access_tests::umask_helper", "--ignored"])
            .env(HELPER, scratch.path())
            .output()
            .unwrap();
        assert!(helped.status.success(), "umask {umask}: {helped:?}");
    }
}

#[tokio::test]
async fn another_user_can_neither_lock_nor_read_nor_create_files() {
    if !is_root("another_user_can_neither_lock_nor_read_nor_create_files") {
        return;
    }
    let scratch = Scratch::new();
    let (mut session, _) = marked(&scratch_node(&scratch)).await;
    granted(&ask(&mut session, acquire("r", 1, SystemWorld.wall())).await);
    let dir = scratch.path().join("node");
    for (program, args) in [
        ("flock", vec![dir.join("quorate.db").into_os_string(), "true".into()]),
        ("cat", vec![dir.join("quorate.db").into()]),
        ("ls", vec![dir.clone().into()]),
        ("touch", vec![dir.join("x").into()]),
        ("ln", vec!["-s".into(), "/etc/passwd".into(), dir.join("y").into()]),
    ] {
        let tried = Command::new("setpriv")
            .args([format!("--reuid={OTHER}"), format!("--regid={OTHER}"), "--clear-groups".into()])
            .arg(program)
            .args(args)
            .output()
            .expect("setpriv of util-linux is installed");
        let said = String::from_utf8_lossy(&tried.stderr);
        assert!(!tried.status.success() && said.contains("Permission denied"), "{program}: {tried:?}");
    }
}

#[tokio::test]
async fn a_directory_open_to_others_is_refused_until_it_is_closed_to_them() {
    for mode in [0o755, 0o750, 0o770, 0o701, 0o777] {
        let scratch = Scratch::new();
        let dir = scratch.path().join("node");
        drop(marked(&scratch_node(&scratch)).await);
        log_removed(&scratch).await;
        set_mode(&dir, mode);
        let why = denied(&scratch_node(&scratch)).await;
        let fix = format!("chmod -R go= {}", dir.display());
        assert!(why.contains(&format!("mode {mode:04o}")) && why.contains(&fix), "{why}");
        assert!(Command::new("sh").args(["-c", &fix]).status().unwrap().success());
        scratch_node(&scratch).open(PushSender::channel().0).await.unwrap();
    }
}

#[tokio::test]
async fn a_parent_that_others_may_write_to_is_refused_unless_it_is_sticky() {
    let scratch = Scratch::new();
    let above = scratch.path().join("above");
    fs::create_dir(&above).unwrap();
    for (mode, is_refused) in [(0o777, true), (0o775, true), (0o1777, false), (0o755, false)] {
        set_mode(&above, mode);
        let node = FileNode::new(above.join(format!("node{mode}")));
        if is_refused {
            let why = denied(&node).await;
            let fix = format!("chmod go-w {}", above.display());
            assert!(why.contains(&format!("mode {mode:04o}")) && why.contains(&fix), "{why}");
            assert!(!node.dir().exists(), "nothing is made below {}", above.display());
        } else {
            node.open(PushSender::channel().0).await.unwrap();
        }
    }
}

#[tokio::test]
async fn files_of_another_user_are_refused() {
    if !is_root("files_of_another_user_are_refused") {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.path().join("node");
    drop(marked(&scratch_node(&scratch)).await);
    log_removed(&scratch).await;
    let owner = format!("belongs to user {OTHER}");

    chown(&dir, Some(OTHER), None).unwrap();
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains(&owner) && why.contains(&format!("chown -R 0 {}", dir.display())), "{why}");
    chown(&dir, Some(0), None).unwrap();

    chown(dir.join("quorate.db"), Some(OTHER), None).unwrap();
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains(&owner) && why.contains("/quorate.db"), "{why}");
    chown(dir.join("quorate.db"), Some(0), None).unwrap();

    // The owner of a directory above the node's directory could replace the node's directory.
    chown(scratch.path(), Some(OTHER), None).unwrap();
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains(&owner) && why.contains(&*scratch.path().to_string_lossy()), "{why}");
    chown(scratch.path(), Some(0), None).unwrap();

    // The owner of a symbolic link on the path can change the link's target.
    let link = scratch.path().join("link");
    symlink(scratch.path(), &link).unwrap();
    let through = FileNode::new(link.join("node"));
    through.open(PushSender::channel().0).await.unwrap();
    std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
    let why = denied(&through).await;
    assert!(why.contains(&owner) && why.contains(&*link.to_string_lossy()), "{why}");
    scratch_node(&scratch).open(PushSender::channel().0).await.unwrap();
}

#[tokio::test]
async fn a_planted_file_is_neither_followed_nor_used() {
    for (name, makes) in [
        ("quorate.db", "mv FILE FILE.old; ln -s FILE.old FILE"),
        ("quorate.db", "rm FILE; mkfifo -m 600 FILE"),
        ("quorate.db", "chmod 644 FILE"),
        ("quorate.db", "chmod 602 FILE"),
        ("quorate.db-wal", "ln -sf /etc/passwd FILE"),
        ("quorate.db-shm", "ln -sf /etc/passwd FILE"),
        ("quorate.db-wal", "touch FILE; chmod 660 FILE"),
    ] {
        let scratch = Scratch::new();
        let file = scratch.path().join("node").join(name);
        let (session, _) = marked(&scratch_node(&scratch)).await;
        drop(session);
        log_removed(&scratch).await;
        let plant = makes.replace("FILE", &file.to_string_lossy());
        assert!(Command::new("sh").args(["-ec", &plant]).status().unwrap().success(), "{plant}");
        let why = denied(&scratch_node(&scratch)).await;
        assert!(why.contains(&*file.to_string_lossy()), "{plant}: {why}");
        let names: Vec<&str> = ["symbolic link", "a pipe", "open to other users"].into();
        assert!(names.iter().any(|name| why.contains(name)), "{plant}: {why}");
    }
}
