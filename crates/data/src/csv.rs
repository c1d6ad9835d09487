//! Tables of numbers with one label column.

use std::io::{self, Chain, Read};
use std::path::Path;

use ::csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Terminator, Trim};

use crate::gz::Input;
use crate::labels::{Labels, number};
use crate::resize::resize_bilinear;
use crate::{ArrayDataset, DataError, Result};

/// Put behind the table so that its last line ends as all others do: the line of a record is then always the
/// one before the reader's. (The reader's own line of a record is wrong behind blank lines.)
const LINE_END: &[u8] = b"\n";

/// Which column holds the labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// The last one.
    #[default]
    Last,
    /// The one of this number, from 0.
    Index(usize),
    /// The one that the header calls so. The file must have a header.
    Named(String),
}

/// How the columns beside the label make an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CsvImages {
    /// `[height, width]` of the image in the table, row by row.
    pub size: [usize; 2],
    /// The value of a white pixel: pixels are divided by it.
    pub white: f32,
    /// `[height, width]` to scale to by [`resize_bilinear`].
    pub resize: Option<[usize; 2]>,
}

/// How to read a CSV table.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvOptions {
    /// The label column. Default the last one.
    pub label: LabelColumn,
    /// Whether the first line holds names; `None` finds out: it does where the label column is chosen by name,
    /// or where no cell of it is a number. Default `None`.
    pub header: Option<bool>,
    /// The character between cells. Default `,`.
    pub delimiter: u8,
    /// How to make images of the other columns; `None` leaves them a vector. Default `None`.
    pub images: Option<CsvImages>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { label: LabelColumn::Last, header: None, delimiter: b',', images: None }
    }
}

/// Reads a table of finite numbers, plain or packed with gzip, into memory.
///
/// Fields: `features`, `f32` of shape `[columns]`, or `image`, `f32` of shape `[1, height, width]`, where
/// [`CsvOptions::images`] says so; and `label`, `i64`, a scalar. Labels are whole numbers from 0, or names:
/// these are numbered in alphabetical order and become the names of the classes.
///
/// # Errors
/// Cells that are no numbers (with line and column), lines of different lengths, a label column that does not
/// exist, files that cannot be read; see [`DataError`].
pub fn read_csv(path: &Path, options: &CsvOptions) -> Result<ArrayDataset> {
    parse(Input::open(path)?, options)
}

pub(crate) fn parse(input: Input, options: &CsvOptions) -> Result<ArrayDataset> {
    let (origin, packed) = (input.origin.clone(), input.is_packed());
    let mut table = Table {
        origin: &origin,
        packed,
        names: None,
        label: 0,
        reader: ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .terminator(Terminator::Any(b'\n'))
            .delimiter(options.delimiter)
            .from_reader(input.chain(LINE_END)),
    };
    table.read(options)
}

struct Table<'a> {
    origin: &'a str,
    packed: bool,
    names: Option<StringRecord>,
    /// The label column.
    label: usize,
    reader: Reader<Chain<Input, &'static [u8]>>,
}

impl Table<'_> {
    fn read(&mut self, options: &CsvOptions) -> Result<ArrayDataset> {
        let mut record = StringRecord::new();
        let mut more = self.next(&mut record)?;
        let width = record.len();
        if more {
            let named = matches!(options.label, LabelColumn::Named(_));
            let words = || record.iter().all(|cell| number(cell).is_none());
            if options.header.unwrap_or_else(|| named || words()) {
                self.names = Some(record.clone());
                self.label = self.find_label(&options.label, width)?;
                more = self.next(&mut record)?;
            } else {
                self.label = self.find_label(&options.label, width)?;
            }
        }
        if !more {
            return Err(DataError::Empty { origin: self.origin.to_owned(), what: "rows" });
        }
        if let Some(CsvImages { size, .. }) = options.images
            && size[0].checked_mul(size[1]) != Some(width - 1)
        {
            return Err(DataError::CsvImages {
                origin: self.origin.to_owned(),
                columns: width - 1,
                height: size[0],
                width: size[1],
            });
        }

        let (mut features, mut labels) = (Vec::new(), Labels::default());
        let mut row = Vec::with_capacity(width - 1);
        while more {
            if record.len() != width {
                return Err(DataError::CsvColumns {
                    origin: self.origin.to_owned(),
                    line: self.line(),
                    expected: width,
                    found: record.len(),
                });
            }
            row.clear();
            for (column, cell) in record.iter().enumerate() {
                if column == self.label {
                    let wanted = labels.push(cell);
                    wanted.map_err(|wanted| self.cell(&record, column, wanted))?;
                } else {
                    let value = number(cell);
                    row.push(value.ok_or_else(|| self.cell(&record, column, "a finite number"))?);
                }
            }
            match options.images {
                None => features.extend_from_slice(&row),
                Some(images) => features.extend(images.make(&mut row)),
            }
            more = self.next(&mut record)?;
        }

        let dataset = match options.images {
            None => ArrayDataset::new().with_field("features", [width - 1], features)?,
            Some(CsvImages { size, resize, .. }) => {
                let [height, width] = resize.unwrap_or(size);
                ArrayDataset::new().with_field("image", [1, height, width], features)?
            }
        };
        labels.add_to(dataset)
    }

    /// Reads the next line that is not blank; whether there was one.
    fn next(&mut self, record: &mut StringRecord) -> Result<bool> {
        loop {
            let offset = self.reader.position().byte();
            let more = self.reader.read_record(record);
            let more = more.map_err(|error| self.error(error, offset))?;
            let blank = record.len() == 1 && record[0].is_empty();
            if !more || !blank {
                return Ok(more);
            }
        }
    }

    fn error(&self, error: ::csv::Error, offset: u64) -> DataError {
        let origin = self.origin.to_owned();
        if let ErrorKind::Io(source) = error.kind() {
            let source = io::Error::new(source.kind(), source.to_string());
            return Input::error(&origin, self.packed, offset, source);
        }
        DataError::CsvText { origin, line: self.line(), source: error }
    }

    fn find_label(&self, label: &LabelColumn, width: usize) -> Result<usize> {
        let problem = |problem| DataError::CsvLabel { origin: self.origin.to_owned(), problem };
        if width < 2 {
            return Err(problem(
                "one column only; a table needs a label and at least one value, separated by commas \
                 (or by CsvOptions::delimiter)"
                    .to_owned(),
            ));
        }
        match (label, &self.names) {
            (LabelColumn::Last, _) => Ok(width - 1),
            (LabelColumn::Index(index), _) if *index < width => Ok(*index),
            (LabelColumn::Index(index), _) => Err(problem(format!(
                "label column {index} was asked for, but there are {width} columns (0 to {})",
                width - 1
            ))),
            (LabelColumn::Named(name), Some(names)) => {
                let found = names.iter().position(|other| other == name);
                found.ok_or_else(|| {
                    let names: Vec<_> = names.iter().collect();
                    problem(format!("no column is called {name:?}; the first line names {}", names.join(", ")))
                })
            }
            (LabelColumn::Named(name), None) => {
                Err(problem(format!("the label column {name:?} was asked for by name, but the table has no header")))
            }
        }
    }

    /// The line of the record just read.
    fn line(&self) -> u64 {
        self.reader.position().line() - 1
    }

    fn cell(&self, record: &StringRecord, column: usize, wanted: &'static str) -> DataError {
        let name = self.names.as_ref().and_then(|names| names.get(column));
        DataError::CsvCell {
            origin: self.origin.to_owned(),
            line: self.line(),
            column: column + 1,
            name: name.map(str::to_owned),
            cell: record[column].to_owned(),
            wanted,
        }
    }
}

impl CsvImages {
    fn make(&self, row: &mut Vec<f32>) -> Vec<f32> {
        row.iter_mut().for_each(|pixel| *pixel /= self.white);
        match self.resize {
            None => std::mem::take(row),
            Some(size) => resize_bilinear(row, self.size, size),
        }
    }
}
