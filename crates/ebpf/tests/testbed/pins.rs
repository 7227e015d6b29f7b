//! Only the owner may write where programs and tables are pinned.

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use sidestep_ebpf::pins::{BPFFS, Pins};
use sidestep_error::chain;
use sidestep_testkit::Testbed;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

const NOBODY: u32 = 65534;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn refusal(path: &Path) -> String {
    chain(&Pins::new(path).unwrap_err()).to_string()
}

#[test]
fn what_is_made_is_for_this_user_alone() {
    let testbed = Testbed::new();
    let directory = testbed.bpffs().join("sidestep");
    let made = Pins::new(&directory).unwrap().make(&["services", "maps"]).unwrap();
    assert_eq!([&directory, &directory.join("services"), &made].map(|path| mode(path)), [0o700; 3]);
    // Earlier versions created it so.
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    Pins::new(&directory).unwrap().create().unwrap();
    assert_eq!(mode(&directory), 0o700);
}

#[test]
fn what_others_could_have_written_is_refused() {
    let testbed = Testbed::new();
    let directory = testbed.bpffs().join("sidestep");
    fs::create_dir(&directory).unwrap();
    for shared in [0o777, 0o1777, 0o770, 0o702] {
        fs::set_permissions(&directory, Permissions::from_mode(shared)).unwrap();
        let said = refusal(&directory);
        assert!(said.contains("can be written by other users") && said.contains("chmod go-w"), "{shared:o}: {said}");
        // In a sticky directory nobody can replace another user's files.
        assert_eq!(Pins::new(&directory.join("deeper")).is_ok(), shared == 0o1777, "{shared:o}");
    }
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    chown(&directory, Some(NOBODY), None).unwrap();
    let said = refusal(&directory);
    assert!(said.contains("belongs to user 65534") && said.contains("remove it"), "{said}");
    fs::remove_dir(&directory).unwrap();
    fs::create_dir(testbed.bpffs().join("other")).unwrap();
    symlink(testbed.bpffs().join("other"), &directory).unwrap();
    assert!(refusal(&directory).contains("is not a directory"));
}

/// A mount whose root directory is writable for everybody, who could rename and remove our files.
#[test]
fn a_file_system_that_is_everybodys_is_refused() {
    let testbed = Testbed::new();
    let place = std::env::temp_dir().join(format!("pins-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    mount("bpf", &place, "bpf", MountFlags::empty(), None).unwrap();
    let made = mode(&place);
    let fine = [0o777, 0o1777, 0o755, 0o700].map(|mode| {
        fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
        Pins::new(&place.join("sidestep")).is_ok()
    });
    unmount(&place, UnmountFlags::DETACH).unwrap();
    assert_eq!((made, fine), (0o1777, [false, true, true, true]), "the kernel makes it sticky");
    fs::remove_dir(&place).unwrap();
    drop(testbed);
}

/// Runs in a mount namespace of its own.
#[test]
fn the_usual_place_is_mounted_for_root_alone() {
    std::thread::spawn(|| {
        // SAFETY: this thread leaves a mount namespace, and what goes with it; it shares no descriptors less than before.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS).unwrap() };
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let bpffs = Path::new(BPFFS);
        while unmount(bpffs, UnmountFlags::DETACH).is_ok() {}
        Pins::new(&bpffs.join("sidestep")).unwrap();
        let found = fs::metadata(bpffs).unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (0o700, 0));
    })
    .join()
    .unwrap();
}
