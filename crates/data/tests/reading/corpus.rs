//! Which text is read, and what is said where it cannot be.

use std::fs;
use std::path::Path;

use crate::common::{gzip, write};
use meshwork_data::text::{Corpus, LeftOutReason};
use meshwork_data::{TextSource, open_text};
use tempfile::TempDir;

fn names(corpus: &Corpus) -> Vec<&str> {
    corpus.documents().iter().map(|document| &*document.name).collect()
}

fn left_out(corpus: &Corpus) -> Vec<(&str, LeftOutReason)> {
    corpus.left_out().iter().map(|left_out| (&*left_out.path, left_out.reason)).collect()
}

fn message(path: impl AsRef<Path>) -> String {
    Corpus::open(path).unwrap_err().to_string()
}

#[test]
fn a_file_is_one_document_plain_or_packed() {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in [("a.txt", "zwölf\r\n".as_bytes().to_vec()), ("a.txt.gz", gzip("zwölf\r\n".as_bytes()))] {
        let path = write(&folder, name, &bytes);
        let corpus = Corpus::open(&path).unwrap();
        assert_eq!((names(&corpus), corpus.origin()), (vec![path.to_str().unwrap()], path.to_str().unwrap()));
        assert_eq!((&*corpus.documents()[0].text, corpus.num_bytes()), ("zwölf\r\n", 8));
    }
}

#[test]
fn a_folder_is_read_in_the_byte_order_of_its_paths() {
    let folder = TempDir::new().unwrap();
    for name in ["b", "a/z", "a.txt", "a/b/c", "B", "ä", "a-1"] {
        write(&folder, name, name.as_bytes());
    }
    let corpus = Corpus::open(&folder).unwrap();
    assert_eq!(names(&corpus), ["B", "a-1", "a.txt", "a/b/c", "a/z", "b", "ä"]);
    assert!(corpus.documents().iter().all(|document| document.text == document.name));
    assert_eq!(left_out(&corpus), []);
}

#[test]
fn what_is_no_text_is_left_out_and_listed() {
    let folder = TempDir::new().unwrap();
    write(&folder, "text", b"text");
    write(&folder, "target.md", b"a file of that name is text");
    write(&folder, ".git/config", b"hidden");
    write(&folder, "a/.env", b"hidden");
    write(&folder, "a/target/x", b"made");
    write(&folder, "binary", b"abc\0def");
    write(&folder, "latin", b"stra\xdfe");
    write(&folder, "nothing", b"");
    let corpus = Corpus::open(&folder).unwrap();
    assert_eq!(names(&corpus), ["target.md", "text"]);
    assert_eq!(
        left_out(&corpus),
        [
            (".git", LeftOutReason::Hidden),
            ("a/.env", LeftOutReason::Hidden),
            ("a/target", LeftOutReason::Target),
            ("binary", LeftOutReason::Binary),
            ("latin", LeftOutReason::NotUtf8(4)),
            ("nothing", LeftOutReason::Empty),
        ]
    );
    let text = open_text(&TextSource { path: Some(folder.path().to_owned()), length: 10, ..TextSource::default() });
    assert_eq!(
        text.unwrap().notes[0],
        format!(
            "{}: left out: .git (hidden), a/.env (hidden), a/target (build output), binary (binary), latin (not UTF-8 \
             at byte 4) and 1 more",
            folder.path().display()
        )
    );
}

#[test]
fn a_hidden_folder_or_one_called_target_is_read_where_it_is_named() {
    let folder = TempDir::new().unwrap();
    write(&folder, ".cache/target/text", b"text");
    assert_eq!(names(&Corpus::open(folder.path().join(".cache/target")).unwrap()), ["text"]);
}

#[cfg(unix)]
#[test]
fn links_and_sockets_are_left_out() {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(&folder, "a/text", b"text");
    let secret = write(&elsewhere, "secret", b"secret");
    symlink(&secret, folder.path().join("file")).unwrap();
    symlink(elsewhere.path(), folder.path().join("folder")).unwrap();
    symlink("a/text", folder.path().join("inside")).unwrap();
    symlink("..", folder.path().join("a/circle")).unwrap();
    symlink("none", folder.path().join("nowhere")).unwrap();
    let _socket = UnixListener::bind(folder.path().join("socket")).unwrap();

    let link = elsewhere.path().join("link");
    symlink(folder.path(), &link).unwrap();
    for root in [folder.path(), &link] {
        let corpus = Corpus::open(root).unwrap();
        assert_eq!(names(&corpus), ["a/text"]);
        assert_eq!(
            left_out(&corpus),
            [
                ("a/circle", LeftOutReason::Link),
                ("file", LeftOutReason::LinkOut),
                ("folder", LeftOutReason::LinkOut),
                ("inside", LeftOutReason::Link),
                ("nowhere", LeftOutReason::LinkOut),
                ("socket", LeftOutReason::Special),
            ]
        );
        let shown: Vec<String> = corpus.left_out().iter().map(ToString::to_string).collect();
        assert_eq!(shown[..2], ["a/circle (a link)", "file (a link that leads out)"]);
        assert_eq!(shown[5], "socket (neither file nor folder)");
    }
    let socket = folder.path().join("socket");
    assert_eq!(
        message(&socket),
        format!("{} is neither a file nor a folder; name a file of text, or a folder of such files", socket.display())
    );
}

#[test]
fn text_that_cannot_be_read_says_why() {
    let folder = TempDir::new().unwrap();
    let none = folder.path().join("none");
    assert_eq!(message(&none), format!("there is no file or folder {}; correct the path", none.display()));

    let empty = write(&folder, "empty", b"");
    assert_eq!(
        message(&empty),
        format!("{} is empty: it holds no text; get the file again or name another one", empty.display())
    );
    let latin = write(&folder, "latin", b"stra\xdfe");
    assert_eq!(
        message(&latin),
        format!("{}: byte 4 (0xdf) is not UTF-8; save the file as UTF-8 text", latin.display())
    );
    let cut = write(&folder, "cut.gz", &gzip(b"text that is cut off")[..20]);
    assert!(message(&cut).contains("broken gzip data"));

    assert_eq!(
        message(&folder),
        format!(
            "the folder {} holds no text (left out: cut.gz (binary), empty (empty), latin (not UTF-8 at \
             byte 4)); name another one",
            folder.path().display()
        )
    );
    let bare = TempDir::new().unwrap();
    assert_eq!(message(&bare), format!("the folder {} holds no text; name another one", bare.path().display()));
}

/// A file that the system refuses to read whoever asks: the first byte of a process's memory.
#[cfg(target_os = "linux")]
#[test]
fn what_the_system_refuses_to_read_is_named() {
    let message = message("/proc/self/mem");
    assert!(message.starts_with("cannot read /proc/self/mem: "), "{message}");
}

#[test]
fn fingerprints_are_of_the_texts_and_their_ends() {
    let of = |texts: &[&'static str]| {
        Corpus::of("test", texts.iter().map(|&text| (text.to_uppercase(), text))).unwrap().fingerprint()
    };
    let all: [&[&str]; 5] = [&["ab"], &["a", "b"], &["b", "a"], &["a"], &["abc"]];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            assert_eq!(of(a) == of(b), i == j);
        }
    }
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "other-name", b"ab");
    assert_eq!(Corpus::open(&path).unwrap().fingerprint(), of(&["ab"]));
    fs::write(&path, "ac").unwrap();
    assert_ne!(Corpus::open(&path).unwrap().fingerprint(), of(&["ab"]));
}

#[test]
fn documents_of_the_program_are_a_corpus_too() {
    let built_in = vec![("a", "text one"), ("empty", ""), ("b", "text two")];
    let text = open_text(&TextSource { built_in, length: 4, ..TextSource::default() }).unwrap();
    assert_eq!((&*text.pair.name, &*text.pair.origin, text.num_documents), ("meshwork", "built in", 2));

    assert_eq!(
        open_text(&TextSource::default()).unwrap_err().to_string(),
        "no text was named, and this build holds none of its own (it was made without the project's sources); name a \
         file or a folder"
    );
    let empty = Corpus::of("made up", [("a", "")]).unwrap_err().to_string();
    assert_eq!(empty, "made up is empty: it holds no text; get the file again or name another one");
}
