//! What is asked of the operating system: the user, the machine, folders for the user alone.

use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
mod unix {
    use super::{Path, PathBuf, io};
    use rustix::process::geteuid;
    use std::fs::{DirBuilder, symlink_metadata};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    /// The machine's name.
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// A folder of the user's among everybody's temporary files.
    pub fn temporary_folder() -> PathBuf {
        std::env::temp_dir().join(format!("meshwork-{}", geteuid().as_raw()))
    }

    /// Makes a folder that only its user can enter, or checks that it is one.
    pub fn make_private(folder: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result,
        }
        let found = symlink_metadata(folder)?;
        let own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
        let refused = "is there already, and not for this user alone; remove it";
        own.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, refused))
    }
}

#[cfg(not(unix))]
mod other {
    use super::{Path, PathBuf, io};

    /// The machine's name.
    pub fn host() -> String {
        std::env::var("COMPUTERNAME").unwrap_or_default()
    }

    /// A folder among temporary files, which are the user's own here.
    pub fn temporary_folder() -> PathBuf {
        std::env::temp_dir().join("meshwork")
    }

    /// Makes a folder where nobody else's are.
    pub fn make_private(folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)
    }
}

#[cfg(not(unix))]
pub use other::{host, make_private, temporary_folder};
#[cfg(unix)]
pub use unix::{host, make_private, temporary_folder};

#[cfg(all(test, unix))]
mod tests {
    use super::make_private;
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn folders_are_for_their_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("meshwork-1000");
        make_private(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        make_private(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(make_private(&folder).unwrap_err().kind(), ErrorKind::PermissionDenied);
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(make_private(&link).is_err());
        assert!(make_private(&parent.path().join("missing/meshwork")).is_err());
    }
}
