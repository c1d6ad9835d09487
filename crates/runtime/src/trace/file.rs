//! The file: Chrome's trace events, an array with one event a line.
//!
//! Viewers accept the array without its end. Times are in microseconds, of which the file has three decimals.

use super::recorder::Record;
use super::{Kind, Span};
use meshwork_graph::Op;
use meshwork_graph::program::{Program, Step};
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file that is being written.
pub(super) struct TraceFile<W: Write> {
    out: BufWriter<W>,
    origin: Instant,
    process: u32,
    /// Those that have been met; their numbers in the file count from 1.
    queues: Vec<Arc<str>>,
    /// What the file says of each step, for programs by their addresses.
    programs: FxHashMap<usize, (Arc<Program>, Vec<String>)>,
    spans: u64,
}

/// Bytes that are written at once, unless there is no more.
const BUFFER: usize = 1 << 18;

/// Most programs whose texts are kept.
const MOST_PROGRAMS: usize = 64;

impl<W: Write> TraceFile<W> {
    /// A file whose times count from `origin`.
    pub fn begin(out: W, origin: Instant) -> io::Result<Self> {
        let (queues, programs, process) = (Vec::new(), FxHashMap::default(), std::process::id());
        let mut file =
            TraceFile { out: BufWriter::with_capacity(BUFFER, out), origin, process, queues, programs, spans: 0 };
        file.out.write_all(b"[\n")?;
        file.name("process_name", 0, "meshwork")?;
        file.flush()?;
        Ok(file)
    }

    /// The event that names the process or a queue.
    fn name(&mut self, what: &str, queue: usize, name: &str) -> io::Result<()> {
        let (process, name) = (self.process, Quoted(name));
        write!(self.out, r#"{{"ph":"M","pid":{process},"tid":{queue},"name":"{what}","args":{{"name":{name}}}}}"#)
    }

    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        let (queue, start, end) = match record {
            Record::Span(span) => (&span.queue, span.start, span.end),
            Record::Step { queue, start, end, .. } => (queue, *start, *end),
        };
        let (process, queue) = (self.process, self.number(queue)?);
        let ts = Micros(start.saturating_duration_since(self.origin));
        let dur = Micros(end.saturating_duration_since(start));
        write!(self.out, ",\n{{\"ph\":\"X\",\"pid\":{process},\"tid\":{queue},\"ts\":{ts},\"dur\":{dur},")?;
        match record {
            Record::Span(span) => self.out.write_all(described(span).as_bytes())?,
            Record::Step { program, step, .. } => {
                let address = Arc::as_ptr(program).addr();
                if self.programs.len() >= MOST_PROGRAMS && !self.programs.contains_key(&address) {
                    self.programs.clear();
                }
                let describe = || (program.clone(), program.steps.iter().map(step_described).collect());
                let (_, texts) = self.programs.entry(address).or_insert_with(describe);
                self.out.write_all(texts[*step].as_bytes())?;
            }
        }
        self.spans += 1;
        self.out.write_all(b"}")
    }

    /// The number of a queue, which is named where it is met first.
    fn number(&mut self, queue: &Arc<str>) -> io::Result<usize> {
        if let Some(i) = self.queues.iter().position(|known| known == queue) {
            return Ok(i + 1);
        }
        self.queues.push(queue.clone());
        self.out.write_all(b",\n")?;
        self.name("thread_name", self.queues.len(), queue)?;
        Ok(self.queues.len())
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the array; says how many spans it has.
    pub fn end(mut self) -> io::Result<u64> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()?;
        Ok(self.spans)
    }
}

/// What the file says of a span apart from its time and place.
fn described(span: &Span) -> String {
    fields(span.kind, &span.name, &span.shapes, span.bytes, span.flops)
}

fn step_described(step: &Step) -> String {
    fields(Kind::Kernel, &kernel_name(&step.op), &step.types(), step.bytes(), step.flops())
}

fn fields(kind: Kind, name: &str, shapes: &str, bytes: u64, flops: u64) -> String {
    let arguments = [
        (!shapes.is_empty()).then(|| format!("\"shapes\":{}", Quoted(shapes))),
        (bytes > 0).then(|| format!("\"bytes\":{bytes}")),
        (flops > 0).then(|| format!("\"flops\":{flops}")),
    ];
    let arguments = arguments.into_iter().flatten().collect::<Vec<_>>().join(",");
    format!("\"name\":{},\"cat\":\"{}\",\"args\":{{{arguments}}}", Quoted(name), kind.name())
}

/// Most operations that the name of a region lists.
const MOST_NAMES: usize = 8;

/// The name of an operation; that of a region has the operations in it, each once, and that of a chain its kernels.
fn kernel_name(op: &Op) -> String {
    match op {
        // As a kernel it copies into dense order.
        Op::Reshape(_) => "copy".to_string(),
        Op::Fused(fused) => {
            let mut names: Vec<&str> = Vec::new();
            for name in fused.code.iter().map(|instr| instr.op.name()) {
                if !["const", "spread"].contains(&name) && !names.contains(&name) {
                    names.push(name);
                }
            }
            if names.len() > MOST_NAMES {
                names.truncate(MOST_NAMES);
                names.push("…");
            }
            format!("fused({})", names.join(" "))
        }
        Op::Chain(chain) => chain.names(kernel_name),
        Op::Epilogue(epilogue) => epilogue.names(kernel_name),
        op => op.operation().name().to_string(),
    }
}

/// Microseconds with the nanoseconds as decimals.
struct Micros(Duration);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.as_micros(), self.0.subsec_nanos() % 1000)
    }
}

/// Text as a JSON string.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
