//! Saving while the disk fails.

use super::{SaveOptions, load, save};
use crate::checkpoint::disk::tests::pull_the_plug_after;
use crate::nn::{Module, Transformer, TransformerConfig};

#[test]
fn a_folder_is_there_as_a_whole_or_not_at_all() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("model");
    let model = Transformer::new(TransformerConfig::gpt2(5, 4, 1, 4, 2));
    model.init(0);
    let options = SaveOptions { max_shard_bytes: 400, ..SaveOptions::default() };
    let mut failures = 0;
    for moments in 0.. {
        pull_the_plug_after(Some(moments));
        let saved = save(&model, &folder, &options);
        pull_the_plug_after(None);
        match saved {
            Ok(()) => break,
            Err(e) if folder.exists() => {
                assert!(e.to_string().starts_with("cannot synchronise"), "{e}");
                load(&folder).expect("a whole folder");
                std::fs::remove_dir_all(&folder).unwrap();
            }
            Err(e) => assert!(e.is_io(), "{e}"),
        }
        failures += 1;
    }
    assert!(failures > 10, "only {failures} moments at which saving may fail");
    load(&folder).expect("a whole folder");
    let left: Vec<_> = place.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["model"], "what failed before leaves nothing behind");
}
