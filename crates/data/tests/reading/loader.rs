//! The sequence of batches is exact: whatever the threads, wherever it is resumed.

use std::sync::Arc;

use crate::common::{options, samples, take};
use meshwork_data::{
    Dataset, Field, FieldType, Loader, LoaderOptions, Order, Position, Result, Rows, Sample, Subset, permutation,
};

const WORKERS: [usize; 4] = [0, 1, 2, 5];

fn all_orders() -> [Order; 2] {
    [Order::Sequential, Order::Shuffled { seed: 9 }]
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers() {
    for order in all_orders() {
        for drop_last in [false, true] {
            let run = |num_workers, prefetch_factor| {
                let options = LoaderOptions { order, drop_last, prefetch_factor, ..options(4, num_workers) };
                take(&mut Loader::new(samples(23), options).unwrap(), 20)
            };
            let expected = run(0, 2);
            for workers in WORKERS {
                for prefetch_factor in [1, 3] {
                    assert_eq!(run(workers, prefetch_factor), expected);
                }
            }
        }
    }
}

#[test]
fn resuming_at_every_position_goes_on_exactly() {
    for order in all_orders() {
        for drop_last in [false, true] {
            let options = |num_workers| LoaderOptions { order, drop_last, ..options(4, num_workers) };
            let mut whole = Loader::new(samples(11), options(0)).unwrap();
            let mut positions = vec![whole.position()];
            let expected: Vec<String> = (0..9)
                .map(|_| {
                    let facts = take(&mut whole, 1).remove(0);
                    positions.push(whole.position());
                    facts
                })
                .collect();
            for (step, position) in positions.into_iter().enumerate() {
                let saved = serde_json::to_string(&position).unwrap();
                let position: Position = serde_json::from_str(&saved).unwrap();
                for workers in [0, 2] {
                    let options = options(workers);
                    let mut resumed = Loader::from_position(samples(11), options, position).unwrap();
                    assert_eq!(resumed.position(), position);
                    let rest = &expected[step..];
                    assert_eq!(take(&mut resumed, rest.len()), rest);
                }
            }
        }
    }
}

#[test]
fn reading_ahead_does_not_move_the_position() {
    let mut loader = Loader::new(samples(10), options(3, 2)).unwrap();
    assert_eq!(loader.position(), Position::default());
    let batch = loader.next().unwrap().unwrap();
    assert_eq!(loader.position(), batch.next_position());
    assert_eq!(loader.position(), Position { epoch: 0, sample: 3 });
}

#[test]
fn a_position_survives_another_batch_size() {
    let options = |batch_size| LoaderOptions { order: Order::Shuffled { seed: 4 }, ..options(batch_size, 1) };
    let position = Position { epoch: 1, sample: 6 };
    let mut loader = Loader::from_position(samples(10), options(3), position).unwrap();
    let order = permutation(10, 4, 1);
    assert_eq!(loader.next().unwrap().unwrap().indices(), &order[6..9]);
    let last = loader.next().unwrap().unwrap();
    assert_eq!((last.indices(), last.is_last()), (&order[9..], true));
}

#[test]
fn every_epoch_is_its_own_permutation_of_the_samples() {
    let options = LoaderOptions { order: Order::Shuffled { seed: 1 }, ..options(7, 2) };
    let mut loader = Loader::new(samples(20), options).unwrap();
    let mut epochs = Vec::new();
    for epoch in 0..3 {
        let mut indices = Vec::new();
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            assert_eq!(batch.epoch(), epoch);
            indices.extend_from_slice(batch.indices());
        }
        assert_eq!(indices, permutation(20, 1, epoch));
        epochs.push(indices);
    }
    assert_ne!(epochs[0], epochs[1]);
    assert_ne!(epochs[1], epochs[2]);
}

#[test]
fn the_last_batch_is_partial() {
    let mut loader = Loader::new(samples(10), options(4, 1)).unwrap();
    assert_eq!(loader.batches_per_epoch(), 3);
    let batches: Vec<_> = loader.epoch().map(Result::unwrap).collect();
    let facts = batches.iter().map(|b| (b.index(), b.len(), b.is_last()));
    assert!(facts.eq([(0, 4, false), (1, 4, false), (2, 2, true)]));
    assert_eq!(batches[2].shape("features"), [2, 2]);
    assert_eq!(batches[2].shape("label"), [2]);
    assert_eq!(batches[2].i64("label"), [2, 0]);
    assert_eq!(loader.next().unwrap().unwrap().epoch(), 1);
}

#[test]
fn epochs_end_the_sequence() {
    for workers in WORKERS {
        let options = LoaderOptions { epochs: Some(2), ..options(4, workers) };
        let mut loader = Loader::new(samples(10), options).unwrap();
        assert_eq!(loader.by_ref().map(Result::unwrap).count(), 6);
        assert!(loader.next().is_none());
        assert_eq!(loader.position(), Position { epoch: 2, sample: 0 });
        assert_eq!(loader.epoch().count(), 0);
    }
}

#[test]
fn shares_of_a_batch_put_together_are_the_batch() {
    let load = |rows| {
        let options = LoaderOptions { order: Order::Shuffled { seed: 2 }, rows, ..options(5, 1) };
        Loader::new(samples(13), options).unwrap().take(6).map(Result::unwrap)
    };
    let mut ranks: Vec<_> = (0..3).map(|rank| load(Rows::Share { rank, world_size: 3 })).collect();
    for whole in load(Rows::All) {
        let mut indices = Vec::new();
        for rank in &mut ranks {
            let part = rank.next().unwrap();
            assert_eq!(part.first_row(), indices.len());
            assert_eq!(part.global_len(), whole.len());
            assert_eq!(part.next_position(), whole.next_position());
            indices.extend_from_slice(part.indices());
        }
        assert_eq!(indices, whole.indices());
    }
    let odd = load(Rows::By(Arc::new(|len| 1..len))).next().unwrap();
    assert_eq!((odd.first_row(), odd.len()), (1, 4));
}

#[test]
fn batches_kept_and_taken_apart_stay_what_they_are() {
    let mut loader = Loader::new(samples(12), options(4, 2)).unwrap();
    let first = loader.next().unwrap().unwrap();
    let values = first.f32("features").to_vec();
    let columns = loader.next().unwrap().unwrap().into_columns();
    assert_eq!(columns.len(), 2);
    assert_eq!(columns[1], vec![1_i64, 2, 0, 1].into());
    drop(loader.by_ref().take(5).map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!(first.f32("features"), values);
}

#[test]
fn subsets_choose_samples() {
    let data = Arc::new(samples(10));
    let range = Subset::range(Arc::clone(&data), 4..9).unwrap();
    let picked = Subset::indices(range, [4, 0, 0]).unwrap();
    assert_eq!((picked.len(), picked.num_classes()), (3, Some(3)));
    let mut loader = Loader::new(picked, options(3, 0)).unwrap();
    let batch = loader.next().unwrap().unwrap();
    assert_eq!(batch.i64("label"), [8 % 3, 4 % 3, 4 % 3]);

    let parts = Subset::random_split(Arc::clone(&data), &[7, 3], 5).unwrap();
    assert_eq!((parts[0].len(), parts[1].len()), (7, 3));
    let mut firsts: Vec<f32> = parts
        .into_iter()
        .flat_map(|part| {
            let all: Vec<usize> = (0..part.len()).collect();
            let columns = meshwork_data::read_samples(&part, &all, 0).unwrap();
            match &columns[0] {
                meshwork_data::Column::F32(values) => values.clone(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    firsts.sort_by(f32::total_cmp);
    assert!(firsts.into_iter().eq((0..20).map(|i| i as f32 / 7.0)));
}

/// Augmentation at random, keyed by epoch and index; it leaves a value unwritten where the epoch is odd.
struct Augmented([Field; 1]);

impl Dataset for Augmented {
    fn len(&self) -> usize {
        6
    }
    fn fields(&self) -> &[Field] {
        &self.0
    }
    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        let epoch = sample.epoch();
        if epoch % 2 == 0 {
            sample.u8(0)[0] = 1;
        }
        sample.u8(0)[1] = 10 * epoch as u8 + index as u8;
        Ok(())
    }
}

#[test]
fn samples_know_their_epoch_and_start_as_zeros() {
    for num_workers in WORKERS {
        let data = Augmented([Field::new("bytes", FieldType::U8, [2])]);
        let mut loader = Loader::new(data, options(3, num_workers)).unwrap();
        let mut next = || loader.next().unwrap().unwrap().u8("bytes").to_vec();
        assert_eq!(next(), [1, 0, 1, 1, 1, 2]);
        assert_eq!(next(), [1, 3, 1, 4, 1, 5]);
        assert_eq!(next(), [0, 10, 0, 11, 0, 12], "memory of a batch before");
    }
}

#[test]
#[should_panic(expected = r#"no field "image" in a batch with the fields ["features", "label"]"#)]
fn an_unknown_field_names_those_there_are() {
    let mut loader = Loader::new(samples(3), options(1, 0)).unwrap();
    loader.next().unwrap().unwrap().f32("image");
}

#[test]
#[should_panic(expected = r#"field "label" is I64, but was asked for as F32"#)]
fn a_field_has_one_type() {
    let mut loader = Loader::new(samples(3), options(1, 0)).unwrap();
    loader.next().unwrap().unwrap().f32("label");
}
