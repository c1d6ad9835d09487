//! The text in the program is the project's, and nothing of the machine is in it.

#[path = "../build/collect.rs"]
mod collect;

use std::fs;
use std::path::Path;

use meshwork_corpus::documents;
use tempfile::TempDir;

const THIS: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_text_in_the_program_is_that_of_the_project() {
    let root = collect::project_around(Path::new(THIS)).unwrap();
    let (files, problems) = collect::documents(&root);
    assert_eq!(problems, [] as [String; 0]);
    assert!(files.len() > 100, "{} documents", files.len());
    let documents = documents();
    assert!(documents.iter().map(|&(name, _)| name).eq(files.iter().map(|(name, _)| name)), "{documents:?}");
    for (&(name, text), (_, file)) in documents.iter().zip(&files) {
        assert!(text == file, "{name} has changed since the crate was compiled");
    }
}

#[test]
fn readme_pages_and_sources_are_in_it_but_no_folders_of_tests() {
    let documents = documents();
    let names: Vec<&str> = documents.iter().map(|&(name, _)| name).collect();
    for name in ["README.md", "docs/design.md", "crates/graph/src/canonical.rs", "crates/corpus/src/lib.rs"] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(names.is_sorted());
    assert!(names.iter().all(|name| name.split('/').nth(2) != Some("tests")));
}

#[test]
fn no_path_of_this_machine_is_in_it() {
    let root = collect::project_around(Path::new(THIS)).unwrap();
    let root = root.to_str().unwrap();
    for (name, text) in documents() {
        assert!(!name.starts_with('/') && !name.contains(root) && !text.contains(root), "{name}");
    }
}

#[test]
fn files_come_sorted_with_equal_line_ends_and_nothing_hidden() {
    let root = TempDir::new().unwrap();
    for (path, text) in [
        ("README.md", "read\r\nme\r\n"),
        ("docs/b/c.md", "c"),
        ("docs/b.md", "b"),
        ("docs/picture.png", "no text"),
        ("docs/.hidden.md", "hidden"),
        ("crates/corpus/src/lib.rs", "lib"),
        ("crates/corpus/src/.#lib.rs", "an editor's"),
        ("crates/a/src/deep/er.rs", "er"),
        ("crates/a/tests/test.rs", "test"),
        ("other/README.md", "other"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (documents, problems) = collect::documents(root.path());
    let expected = [
        ("README.md", "read\nme\n"),
        ("crates/a/src/deep/er.rs", "er"),
        ("crates/corpus/src/lib.rs", "lib"),
        ("docs/b.md", "b"),
        ("docs/b/c.md", "c"),
    ];
    assert!(documents.iter().map(|(name, text)| (&**name, &**text)).eq(expected), "{documents:?}");
    assert!(problems.is_empty());

    fs::write(root.path().join("docs/b.md"), [0xff]).unwrap();
    let (documents, problems) = collect::documents(root.path());
    assert_eq!(documents.len(), 4);
    assert!(problems.len() == 1 && problems[0].starts_with("docs/b.md: "), "{problems:?}");

    let watched = collect::watched(root.path());
    let below = ["README.md", "docs", "crates/a/src", "crates/corpus/src"].map(|path| root.path().join(path));
    assert!(watched.len() == 4 && below.iter().all(|path| watched.contains(path)), "{watched:?}");
}

#[test]
fn a_crate_by_itself_has_no_project_around_it() {
    let root = TempDir::new().unwrap();
    let this = root.path().join("registry/meshwork-corpus-0.1.0");
    fs::create_dir_all(&this).unwrap();
    fs::write(root.path().join("README.md"), "another project's").unwrap();
    assert_eq!(collect::project_around(&this), None);
    fs::create_dir_all(root.path().join("crates/corpus")).unwrap();
    assert_eq!(collect::project_around(&this), None, "it is not this crate that lies there");
    assert_eq!(collect::project_around(&root.path().join("crates/corpus")), Some(root.path().to_owned()));
}
