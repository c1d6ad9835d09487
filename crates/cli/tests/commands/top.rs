//! Watching a training from another process, without a terminal and on one.

use crate::common::{Place, Ran};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A training without an end, which is killed when it is dropped.
struct Training(Child);

impl Training {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program with a folder of the user's own, so that no other training is found.
fn command(place: &Place, arguments: &str) -> Command {
    let mut command = place.command(arguments);
    command.env("XDG_RUNTIME_DIR", place.path("")).env("TMPDIR", place.path(""));
    command
}

fn run(place: &Place, arguments: &str) -> Ran {
    let Output { status, stdout, stderr } = command(place, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs and expects one line of complaint, and this exit code.
fn refused(place: &Place, arguments: &str, code: i32) -> String {
    let ran = run(place, arguments);
    assert_eq!(ran.code, Some(code), "{arguments}: {}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    ran.stderr.trim_end().strip_prefix("error: ").expect("a complaint").to_string()
}

/// Starts to train; there is a first step when this returns.
fn train(place: &Place, more: &str) -> Training {
    let mut command = command(place, &format!("train mlp --epochs 100000 --batch 100 {more}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let training = Training(child);
    let published = place.path(&format!("meshwork/{}.json", training.pid()));
    let start = Instant::now();
    let begun = || fs::read_to_string(&published).is_ok_and(|text| !text.contains("\"step\":0,"));
    while !begun() {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is published in {}", published.display());
        sleep(Duration::from_millis(20));
    }
    training
}

/// The step that a line begins with.
fn step(line: &str) -> u64 {
    let number = line.strip_prefix("step ").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("{line:?}"))
}

#[test]
fn lines_follow_a_training_to_its_end() {
    let place = Place::new();
    let mut training = train(&place, "--save run");
    for target in [training.pid().to_string(), "run".to_string(), String::new()] {
        let mut top = command(&place, &format!("top {target} --plain --interval 0.3"));
        let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(top.stdout.take().unwrap()).lines().map(Result::unwrap).take(4);
        let lines: Vec<String> = lines.collect();
        assert!(step(&lines[0]) < step(&lines[3]), "{lines:?}");
        for part in
            ["epoch ", "loss ", " steps/s", " samples/s", "cores ", "cpu:0 busy ", " waiting", "memory ", " planned"]
        {
            assert!(lines[3].contains(part), "{part:?} is missing in {lines:?}");
        }
        // Who has read enough closes the pipe.
        assert!(top.wait().unwrap().success());
    }

    let top = command(&place, "top run --interval 0.1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    training.signal(Signal::INT);
    let Output { status, stdout, stderr } = top.wait_with_output().unwrap();
    assert_eq!((status.code(), stderr.len()), (Some(0), 0), "{}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).unwrap();
    let last = text.lines().last().unwrap();
    let begin = format!("mlp on digits (process {}) has ended after step ", training.pid());
    assert!(last.starts_with(&begin), "{text}");
    assert_eq!(training.wait(), Some(130));
    assert_eq!(fs::read_dir(place.path("meshwork")).unwrap().count(), 0, "a status was left behind");
    assert!(!place.path("run/status.json").exists());
}

#[test]
fn a_training_that_dies_is_noticed() {
    let place = Place::new();
    let mut training = train(&place, "--save run");
    let pid = training.pid();
    let top = command(&place, &format!("top {pid} --interval 0.1"));
    let top = { top }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    training.signal(Signal::KILL);
    training.wait();
    let Output { status, stderr, .. } = top.wait_with_output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.starts_with(&format!("error: mlp on digits (process {pid}) died after step ")), "{text}");
    assert!(text.ends_with("; go on from its last checkpoint with: meshwork train --resume run\n"), "{text}");

    // What it has left behind is no running training, and goes.
    assert!(place.path("run/status.json").exists());
    assert!(refused(&place, "top run", 1).contains("died after step"));
    assert!(place.path(&format!("meshwork/{pid}.json")).exists());
    assert!(refused(&place, "top", 2).starts_with("no training of yours is running on this machine"));
    assert!(!place.path(&format!("meshwork/{pid}.json")).exists());
    assert!(refused(&place, &format!("top {pid}"), 2).starts_with(&format!("there is no process {pid}")));
}

#[test]
fn one_of_several_trainings_must_be_named() {
    let place = Place::new();
    let trainings = [train(&place, "--save run --threads 1"), train(&place, "--threads 1")];
    let ran = run(&place, "top --plain");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("error: 2 trainings are running; name one, such as: meshwork top "),
        "{}",
        ran.stderr
    );
    for training in &trainings {
        assert!(ran.stdout.contains(&training.pid().to_string()), "{}", ran.stdout);
    }
    assert_eq!(ran.stdout.matches("mlp on digits, step ").count(), 2, "{}", ran.stdout);
    assert_eq!(ran.stdout.matches(", saved to run\n").count(), 1, "{}", ran.stdout);
}

#[test]
fn what_cannot_be_watched_is_said() {
    let place = Place::new();
    place.write("file", "text");
    fs::create_dir(place.path("empty")).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    place.write("other/status.json", "{\"version\":2,\"cores\":{}}");
    fs::create_dir(place.path("strange")).unwrap();
    place.write("strange/status.json", "{\"ver");
    let own = std::process::id();
    let cases = [
        ("top".to_string(), "no training of yours is running on this machine".to_string()),
        ("top 0".into(), "there is no process 0; ".into()),
        ("top 4294967295".into(), "there is no process 4294967295; ".into()),
        (format!("top {own}"), format!("process {own} is no training of yours; ")),
        ("top nowhere".into(), "\"nowhere\" is neither a process nor a folder of a run".into()),
        ("top file".into(), "file is a file; name a process or the folder of a run".into()),
        ("top empty".into(), "no training publishes itself in empty: it has ended, or saves elsewhere; ".into()),
        (
            "top other".into(),
            "other/status.json is a status of version 2, and this program reads version 1; watch with the program \
             that trains"
                .into(),
        ),
        ("top strange".into(), "strange/status.json is no status of a training: ".into()),
        ("top --interval 0".into(), "--interval: \"0\" is not a number of seconds from 0.05 to 3600".into()),
        ("top --intervall 1".into(), "there is no flag --intervall (did you mean --interval?)".into()),
        ("top 1 2".into(), "\"2\" is one name too many".into()),
    ];
    for (arguments, expected) in cases {
        let line = refused(&place, &arguments, 2);
        assert!(line.starts_with(&expected), "{arguments}: {line}\nexpected {expected}");
    }
}

#[test]
fn a_training_watches_itself_in_lines_where_there_is_no_terminal() {
    let place = Place::new();
    let ran = run(&place, "train mlp --epochs 2 --batch 90 --top");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    assert!(ran.stdout.lines().any(|line| line.starts_with("step ") && line.contains("cpu:0 busy ")), "{}", ran.stdout);
    assert!(ran.stdout.contains("epoch 2/2  train loss "), "{}", ran.stdout);
    assert!(ran.stdout.lines().last().unwrap().starts_with("test accuracy "), "{}", ran.stdout);
}

#[test]
fn a_training_that_cannot_publish_itself_trains() {
    let place = Place::new();
    place.write("not-a-folder", "");
    let mut command = place.command("train mlp --steps 2");
    let nowhere = place.path("not-a-folder");
    let output = command.env("XDG_RUNTIME_DIR", &nowhere).env("TMPDIR", &nowhere).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("warning: the training cannot be watched from outside (meshwork top): "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("test accuracy "));
}

/// How a program ended that ran on a terminal.
struct OnTerminal {
    code: Option<i32>,
    /// What it drew, and what it printed after it had given the terminal back.
    drawn: String,
    printed: String,
}

/// Runs on a terminal until it has drawn `sight`; then `act` does something to it. The terminal must be as it was.
fn on_terminal(mut command: Command, sight: &str, act: impl FnOnce(&Child, &mut File)) -> OnTerminal {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    let terminal = open();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let before = tcgetattr(&terminal).unwrap();
    let mut child = command.env("TERM", "xterm").stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
    drop(command);

    let mut keyboard = File::from(keyboard);
    let mut screen = keyboard.try_clone().unwrap();
    let (send, bytes) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // The end of a terminal that nobody has open any more is an error.
        while let Ok(n @ 1..) = screen.read(&mut buffer) {
            send.send(buffer[..n].to_vec()).unwrap();
        }
    });
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(sight) {
        let more = bytes.recv_timeout(Duration::from_secs(60));
        seen.extend(more.unwrap_or_else(|_| panic!("{sight:?} is missing in {}", String::from_utf8_lossy(&seen))));
    }
    act(&child, &mut keyboard);
    let code = child.wait().unwrap().code();
    let after = tcgetattr(&terminal).unwrap();
    drop(terminal);
    reader.join().unwrap();
    seen.extend(bytes.try_iter().flatten());

    assert_eq!(
        (before.local_modes, before.input_modes, before.output_modes),
        (after.local_modes, after.input_modes, after.output_modes),
        "the terminal is not as it was"
    );
    let text = String::from_utf8(seen).unwrap();
    assert_eq!([text.matches("\x1b[?1049h").count(), text.matches("\x1b[?1049l").count()], [1, 1], "{text:?}");
    let (drawn, printed) = text.split_once("\x1b[?1049l").unwrap();
    OnTerminal { code, drawn: drawn.to_string(), printed: printed.to_string() }
}

#[test]
fn a_view_of_another_process_leaves_it_alone() {
    let place = Place::new();
    let mut training = train(&place, "");
    let top = |act: &dyn Fn(&Child, &mut File)| {
        let top = on_terminal(command(&place, "top"), "cores", |child, keyboard| act(child, keyboard));
        for part in ["mlp on digits", "q quits", "loss ", "cores", "busy", "memory"] {
            assert!(top.drawn.contains(part), "{part:?} is missing in {:?}", top.drawn);
        }
        assert!(!top.printed.contains("error"), "{:?}", top.printed);
        top.code
    };
    assert_eq!(top(&|_, keyboard| keyboard.write_all(b"q").unwrap()), Some(0));
    assert_eq!(top(&|_, keyboard| keyboard.write_all(b"\x03").unwrap()), Some(0));
    assert_eq!(top(&|child, _| kill_process(Pid::from_child(child), Signal::TERM).unwrap()), None);
    assert!(training.0.try_wait().unwrap().is_none(), "the training has ended");

    let top = on_terminal(command(&place, "top"), "cpu:0, ", |_, _| training.signal(Signal::INT));
    assert_eq!(top.code, Some(0));
    assert!(top.printed.contains("has ended after step "), "{:?}", top.printed);
}

#[test]
fn a_training_beside_its_view_stops_as_at_ctrl_c() {
    let place = Place::new();
    let train = || command(&place, "train mlp --epochs 100000 --batch 100 --save run --overwrite --top");
    let quit = |keys: &'static [u8]| move |_: &Child, keyboard: &mut File| keyboard.write_all(keys).unwrap();
    for keys in [&b"q"[..], b"\x03"] {
        let ran = on_terminal(train(), "accuracy", quit(keys));
        assert_eq!(ran.code, Some(130), "{:?}", ran.printed);
        assert!(ran.printed.contains("epoch 1/100000  train loss "), "{:?}", ran.printed);
        let saved = "saved to run; go on with: meshwork train --resume run\r\n";
        assert!(ran.printed.ends_with(saved), "{:?}", ran.printed);
    }
    let ran = on_terminal(train(), "q stops the training", quit(b"qq"));
    assert_eq!(ran.code, Some(130), "{:?}", ran.printed);

    let ended = command(&place, "train mlp --epochs 40 --batch 100 --top");
    let ran = on_terminal(ended, "memory", |_, _| ());
    assert_eq!(ran.code, Some(0), "{:?}", ran.printed);
    assert!(
        ran.printed.contains("epoch 40/40  train loss ") && ran.printed.contains("test accuracy "),
        "{:?}",
        ran.printed
    );
}
