//! Tests of the access that other users have to a node's files. Each test acts as another local user, or uses
//! files that such a user left behind.

use super::tests::{HELPER, Scratch, acquire, ask, granted, marked, release, scratch_node};
use super::{FileNode, SystemWorld, World};
use crate::node::{Cause, Node, PushSender, Refusal, Reply};
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
        let all = modes(&scratch.path().join("above"));
        assert!(all.len() > 9, "{all:?}");
        for (path, is_dir, mode) in all {
            assert_eq!(mode, if is_dir { 0o700 } else { 0o600 }, "umask {umask}: {}", path.display());
        }
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
        ("flock", vec![dir.join("lock").into_os_string(), "true".into()]),
        ("cat", vec![dir.join("marker.json").into()]),
        ("ls", vec![dir.clone().into()]),
        ("touch", vec![dir.join("counters/x").into()]),
        ("ln", vec!["-s".into(), "/etc/passwd".into(), dir.join("leases/x").into()]),
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
        set_mode(&dir, mode);
        let why = denied(&scratch_node(&scratch)).await;
        let fix = format!("chmod -R go= {}", dir.display());
        assert!(why.contains(&format!("mode {mode:04o}")) && why.contains(&fix), "{why}");
        assert!(Command::new("sh").args(["-c", &fix]).status().unwrap().success());
        scratch_node(&scratch).open(PushSender::channel().0).await.unwrap();
    }
}

#[tokio::test]
async fn a_subdirectory_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new();
    drop(marked(&scratch_node(&scratch)).await);
    let counters = scratch.path().join("node/counters");
    set_mode(&counters, 0o777);
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains(&format!("chmod -R go= {}", counters.display())), "{why}");
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
    let owner = format!("belongs to user {OTHER}");

    chown(&dir, Some(OTHER), None).unwrap();
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains(&owner) && why.contains(&format!("chown -R 0 {}", dir.display())), "{why}");
    chown(&dir, Some(0), None).unwrap();

    chown(dir.join("lock"), Some(OTHER), None).unwrap();
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains(&owner) && why.contains("/lock"), "{why}");
    chown(dir.join("lock"), Some(0), None).unwrap();

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
async fn a_planted_link_is_neither_followed_nor_written_through() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("node");
    let victim = scratch.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let (mut session, _) = marked(&scratch_node(&scratch)).await;
    let wall = SystemWorld.wall();
    granted(&ask(&mut session, acquire("r", 1, wall)).await);
    let leases = fs::read_dir(dir.join("leases")).unwrap().next().unwrap().unwrap().path();
    // The other user has created symbolic links under the names of temporary files that earlier versions used.
    for planted in [leases.join(".0.tmp"), dir.join("counters/.0.tmp"), dir.join("counters/.1.tmp")] {
        symlink(&victim, planted).unwrap();
    }
    granted(&ask(&mut session, acquire("s", 1, wall)).await);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");

    // The other user has put a symbolic link in the place of a lease's file.
    set_mode(&victim, 0o600);
    let row = leases.join(super::names::file_name("r"));
    fs::remove_file(&row).unwrap();
    symlink(&victim, &row).unwrap();
    let Reply::Refused(Refusal::Failed(why)) = ask(&mut session, acquire("r", 2, wall)).await else {
        panic!("a planted row is used")
    };
    assert!(why.contains("symbolic link") && why.contains(&*row.to_string_lossy()), "{why}");
    fs::remove_file(&row).unwrap();

    // The other user has put a symbolic link in the place of another boot's lease directory. The sweep removes
    // the leases of other boots, but must not follow the link.
    let elsewhere = scratch.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("kept"), "").unwrap();
    symlink(&elsewhere, dir.join("leases/planted")).unwrap();
    for n in 0..300 {
        granted(&ask(&mut session, acquire(&format!("n{n}"), 1, SystemWorld.wall())).await);
        ask(&mut session, release(&format!("n{n}"), 1)).await;
    }
    assert!(elsewhere.join("kept").exists());

    // The other user has put a symbolic link in the place of the lock file.
    fs::remove_file(dir.join("lock")).unwrap();
    symlink(&victim, dir.join("lock")).unwrap();
    let why = denied(&scratch_node(&scratch)).await;
    assert!(why.contains("symbolic link") && why.contains("/lock"), "{why}");
}

#[tokio::test]
async fn a_file_open_to_others_is_refused_until_it_is_closed_to_them() {
    let scratch = Scratch::new();
    let (mut session, _) = marked(&scratch_node(&scratch)).await;
    let wall = SystemWorld.wall();
    granted(&ask(&mut session, acquire("r", 1, wall)).await);
    ask(&mut session, release("r", 1)).await;
    let counters = scratch.path().join("node/counters").join(super::names::file_name("r"));
    for mode in [0o644, 0o660, 0o602] {
        set_mode(&counters, mode);
        let Reply::Refused(Refusal::Failed(why)) = ask(&mut session, acquire("r", 1, wall)).await else {
            panic!("a file of mode {mode:o} is used")
        };
        assert!(why.contains(&format!("mode {mode:04o}")) && why.contains("chmod go= "), "{why}");
    }
    // The other user has put a pipe in the place of the counter's file. Opening a pipe would block the thread.
    fs::remove_file(&counters).unwrap();
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&counters).status().unwrap().success());
    let Reply::Refused(Refusal::Failed(why)) = ask(&mut session, acquire("r", 1, wall)).await else {
        panic!("a pipe is used")
    };
    assert!(why.contains("not a regular file"), "{why}");
}

#[tokio::test]
async fn incomplete_files_of_a_crash_are_removed() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("node");
    let (mut session, _) = marked(&scratch_node(&scratch)).await;
    let wall = SystemWorld.wall();
    granted(&ask(&mut session, acquire("r", 1, wall)).await);
    let leases = fs::read_dir(dir.join("leases")).unwrap().next().unwrap().unwrap().path();
    let left: Vec<PathBuf> =
        [dir.clone(), leases, dir.join("counters"), dir.join("claims"), dir.join("ledgers")]
            .into_iter()
            .flat_map(|shelf| [shelf.join(".0.tmp"), shelf.join(".0123456789abcdef.tmp")])
            .collect();
    left.iter().for_each(|file| fs::write(file, "half").unwrap());
    for n in 0..200 {
        granted(&ask(&mut session, acquire(&format!("n{n}"), 1, SystemWorld.wall())).await);
        ask(&mut session, release(&format!("n{n}"), 1)).await;
    }
    let still: Vec<_> = left.iter().filter(|file| file.exists()).collect();
    assert!(still.is_empty(), "{still:?}");
}
