//! What fails reaches the reader, and nothing ever hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{options, samples};
use meshwork_data::{
    ArrayDataset, DataError, Dataset, Field, Loader, LoaderOptions, Order, Position, Result, Rows, Sample, Subset,
};

/// Runs `test` on another thread and fails if it takes longer than any test should.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match wait.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

/// Samples that call a function before they are read.
struct Hooked<F>(ArrayDataset, F);

impl<F: Fn(usize) -> Result<()> + Send + Sync> Dataset for Hooked<F> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn fields(&self) -> &[Field] {
        self.0.fields()
    }
    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        self.1(index)?;
        self.0.read(index, sample)
    }
}

#[test]
fn an_error_of_a_worker_reaches_the_reader_in_its_turn() {
    within_a_minute(|| {
        for workers in [0, 1, 2, 5] {
            let data = Hooked(samples(20), |index| match index {
                13 => Err(DataError::other("the disk is on fire")),
                _ => Ok(()),
            });
            let mut loader = Loader::new(data, options(4, workers)).unwrap();
            for index in 0..3 {
                assert_eq!(loader.next().unwrap().unwrap().index(), index);
            }
            let error = loader.next().unwrap().unwrap_err();
            assert_eq!(error.to_string(), "sample 13 (epoch 0) cannot be read: the disk is on fire");
            assert!(loader.next().is_none());
            assert_eq!(loader.position(), Position { epoch: 0, sample: 12 });
        }
    });
}

#[test]
fn a_panic_of_a_worker_reaches_the_reader_in_its_turn() {
    within_a_minute(|| {
        for workers in [0, 1, 2, 5] {
            let data = Hooked(samples(20), |index| {
                assert!(index != 6, "sample {index} is cursed");
                Ok(())
            });
            let mut loader = Loader::new(data, options(4, workers)).unwrap();
            assert!(loader.next().unwrap().is_ok());
            let error = loader.next().unwrap().unwrap_err();
            assert_eq!(error.to_string(), "reading sample 6 (epoch 0) panicked: sample 6 is cursed");
            assert!(loader.next().is_none());
        }
    });
}

/// A payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_with_a_hostile_payload_is_an_error_too() {
    within_a_minute(|| {
        let data = Hooked(samples(4), |_| std::panic::panic_any(Bomb));
        let mut loader = Loader::new(data, options(2, 2)).unwrap();
        let error = loader.next().unwrap().unwrap_err();
        assert!(error.to_string().contains("without a message"), "{error}");
    });
}

#[test]
fn every_worker_failing_at_once_is_one_error() {
    within_a_minute(|| {
        let data = Hooked(samples(40), |_| Err(DataError::other("no")));
        let mut loader = Loader::new(data, options(1, 5)).unwrap();
        assert!(loader.next().unwrap().is_err());
        assert!(loader.next().is_none());
    });
}

#[test]
fn dropping_in_the_middle_joins_the_threads() {
    within_a_minute(|| {
        for workers in [1, 2, 5] {
            for taken in [0, 1, 7] {
                let data = Arc::new(samples(30));
                let mut loader = Loader::new(Arc::clone(&data), options(4, workers)).unwrap();
                let kept: Vec<_> = loader.by_ref().take(taken).collect();
                drop(loader);
                assert_eq!(Arc::strong_count(&data), 1, "a thread holds the dataset");
                assert_eq!(kept.len(), taken);
            }
        }
    });
}

#[test]
fn dropping_does_not_wait_for_whole_batches() {
    within_a_minute(|| {
        let data = Hooked(samples(100_000), |_| {
            thread::sleep(Duration::from_millis(5));
            Ok(())
        });
        let loader = Loader::new(data, options(100_000, 2)).unwrap();
        thread::sleep(Duration::from_millis(20));
        drop(loader);
    });
}

#[test]
fn reading_ahead_is_bounded() {
    within_a_minute(|| {
        let read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&read);
        let data = Hooked(samples(1000), move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let options = LoaderOptions { prefetch_factor: 3, ..options(1, 2) };
        let mut loader = Loader::new(data, options).unwrap();
        loader.next().unwrap().unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(read.load(Ordering::Relaxed) <= 1 + 2 * 3);
    });
}

/// A slow sample must not let later ones overtake it.
#[test]
fn slow_samples_keep_their_place() {
    within_a_minute(|| {
        let data = Hooked(samples(12), |index| {
            thread::sleep(Duration::from_millis(if index % 4 == 0 { 15 } else { 0 }));
            Ok(())
        });
        let loader = Loader::new(data, options(1, 5)).unwrap();
        let indices = loader.take(24).map(|batch| batch.unwrap().indices()[0]);
        assert!(indices.eq((0..12).chain(0..12)));
    });
}

fn refused(options: LoaderOptions) -> String {
    Loader::new(samples(5), options).unwrap_err().to_string()
}

#[test]
fn options_without_sense_are_refused() {
    let zero = refused(options(0, 1));
    assert_eq!(zero, "loader: a batch_size of 0; use at least 1");
    let dropped = refused(LoaderOptions { drop_last: true, ..options(6, 1) });
    assert!(dropped.contains("a batch_size of 6 leaves no batch of 5 samples"), "{dropped}");
    let ahead = refused(LoaderOptions { prefetch_factor: 0, ..options(2, 1) });
    assert!(ahead.contains("a prefetch_factor of 0"), "{ahead}");
    let rank = refused(LoaderOptions { rows: Rows::Share { rank: 2, world_size: 2 }, ..options(2, 1) });
    assert!(rank.contains("rank 2 of 2"), "{rank}");
    let empty = Loader::new(samples(0), options(1, 0)).unwrap_err();
    assert!(empty.to_string().contains("the dataset holds no samples"), "{empty}");
}

#[test]
fn rows_outside_of_a_batch_are_refused() {
    let options = LoaderOptions { rows: Rows::By(Arc::new(|len| 0..len + 1)), ..options(2, 1) };
    let error = Loader::new(samples(5), options).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("rows 0..3 of a batch of 2"), "{error}");
}

#[test]
fn a_panic_before_the_first_sample_is_an_error_too() {
    within_a_minute(|| {
        let options = LoaderOptions { rows: Rows::By(Arc::new(|_| panic!("no rows today"))), ..options(2, 2) };
        let mut loader = Loader::new(samples(5), options).unwrap();
        assert_eq!(
            loader.next().unwrap().unwrap_err().to_string(),
            "reading a batch (epoch 0) panicked: no rows today"
        );
    });
}

#[test]
fn threads_that_cannot_be_started_are_counted() {
    let error = DataError::Threads { worker: 3, num_workers: 8, source: std::io::Error::other("too many threads") };
    assert_eq!(error.to_string(), "cannot start worker thread 3 of 8: too many threads; use fewer workers");
}

#[test]
fn positions_outside_of_the_dataset_are_refused() {
    let position = Position { epoch: 3, sample: 6 };
    let error = Loader::from_position(samples(5), options(2, 1), position).unwrap_err();
    assert_eq!(
        error.to_string(),
        "loader: the position is epoch 3, sample 6, but an epoch has 5 samples; resume with the dataset \
         that the position was saved with"
    );
    let unknown = serde_json::from_str::<Position>(r#"{"epoch": 1, "sample": 2, "batch": 3}"#);
    assert!(unknown.unwrap_err().to_string().contains("unknown field `batch`"));
}

#[test]
fn samples_outside_of_a_dataset_are_refused() {
    let data = samples(5);
    let error = meshwork_data::read_samples(&data, &[4, 5], 0).unwrap_err();
    assert!(error.to_string().contains("sample 5 was asked for, but the dataset holds 5"), "{error}");
    let error = Subset::range(&data, 3..6).unwrap_err();
    assert!(matches!(error, DataError::OutOfRange { index: 5, len: 5 }));
    let error = Subset::indices(&data, [0, 9]).unwrap_err();
    assert!(matches!(error, DataError::OutOfRange { index: 9, len: 5 }));
    assert!(Subset::random_split(&data, &[3, 3], 0).is_err());
    let subset = Subset::range(&data, 0..2).unwrap();
    assert!(meshwork_data::read_samples(&subset, &[2], 0).is_err());
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let with = |name: &str, shape: &[usize], len: usize| {
        samples(3).with_field(name, shape, vec![0.0_f32; len]).unwrap_err().to_string()
    };
    assert!(with("x", &[2], 5).contains("5 values are no whole number of samples"));
    assert!(with("x", &[2], 8).contains("it holds 4 samples, but the fields before hold 3"));
    assert!(with("x", &[0], 0).contains("no countable elements"));
    assert!(with("x", &[usize::MAX, 2], 0).contains("no countable elements"));
    assert!(with("label", &[], 3).contains("a field of this name already"));

    let error = samples(3).with_num_classes(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the field \"label\": sample 2 has the label 2, outside of 0..2; correct the label or the \
         number of classes"
    );
    let bare = ArrayDataset::new().with_field("x", [], vec![1_u8]).unwrap();
    assert!(bare.with_num_classes(2).unwrap_err().to_string().contains("no such field"));
}

#[test]
fn orders_are_written_as_words() {
    let text = serde_json::to_string(&Order::Shuffled { seed: 7 }).unwrap();
    assert_eq!(text, r#"{"shuffled":{"seed":7}}"#);
}
