//! Kernels that take their time, and queues that are held up, change no bit.

use crate::kernels::{dawdle_both_ways, late};
use crate::{alone, train};
use meshwork::tensor::ones;
use meshwork::{DType, Device, Link, Tensor, link, set_link};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PLANS: [&str; 5] =
    ["data=4", "data=4,zero=3", "data=2,tensor=2,zero=1", "tensor=4", "data=2,tensor=2,zero=3,accumulate=2"];

/// Runs `body` while other work comes to all queues of the devices, that of copies included, at irregular moments.
fn disturbed<R>(devices: &[Device], body: impl FnOnce() -> R) -> R {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let blocks: Vec<Tensor> = devices.iter().map(|d| ones(&[200_000], DType::F32).to(d)).collect();
            for i in (0..).take_while(|_| !ended.load(Ordering::Relaxed)) {
                let (from, to) = (&blocks[i * 7 % devices.len()], &devices[(i * 5 + 1) % devices.len()]);
                let busy = late(from, 1 + i as u64 % 3);
                let copy = from.to(to) * 2.0;
                busy.eval();
                copy.eval();
                std::thread::sleep(Duration::from_micros(200 * (i as u64 % 9)));
                drop(copy.to_bytes());
            }
        });
        let _end = End(&ended);
        body()
    })
}

#[test]
fn slow_kernels_and_busy_queues_change_no_bit() {
    alone(4, |devices| {
        let expected = train(|x| x.clone(), None, 8);
        assert_eq!(train(dawdle_both_ways, None, 8), expected);
        for plan in PLANS {
            for round in 0..3 {
                let got = train(dawdle_both_ways, Some((plan, &devices)), 8);
                assert!(got == expected, "{plan}, slow kernels, round {round}");
                let got = disturbed(&devices, || train(|x| x.clone(), Some((plan, &devices)), 8));
                assert!(got == expected, "{plan}, busy queues, round {round}");
                let got = disturbed(&devices, || train(dawdle_both_ways, Some((plan, &devices)), 8));
                assert!(got == expected, "{plan}, slow kernels and busy queues, round {round}");
            }
        }
    });
}

/// Two trainings at once on the same devices do not touch each other.
#[test]
fn trainings_share_devices() {
    alone(4, |devices| {
        let expected = train(|x| x.clone(), None, 6);
        std::thread::scope(|scope| {
            for plan in PLANS {
                let (devices, expected) = (&devices, &expected);
                scope.spawn(move || assert!(&train(dawdle_both_ways, Some((plan, devices)), 6) == expected, "{plan}"));
            }
        });
    });
}

/// A copy over a link cannot be done before the link's time is over; how much later it is does not matter.
#[test]
fn a_slow_link_takes_its_time_and_changes_no_bit() {
    alone(4, |devices| {
        let expected = train(|x| x.clone(), None, 4);
        let before = link().unwrap();
        let slow = Link { bytes_per_second: 20e6, latency: Duration::from_micros(300) };
        set_link(Some(slow)).unwrap();
        assert!(set_link(Some(Link { bytes_per_second: 0.0, ..slow })).is_err());
        assert_eq!(link().unwrap(), Some(slow), "what is refused changes nothing");

        let numbers: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
        let here = Tensor::from_slice(&numbers, &[numbers.len()]).to(&devices[0]);
        here.eval();
        meshwork::synchronize();
        let start = Instant::now();
        assert_eq!(here.to(&devices[1]).to_vec::<f32>(), numbers);
        assert!(start.elapsed() >= slow.time(4 * numbers.len()));

        for plan in PLANS {
            assert!(train(|x| x.clone(), Some((plan, &devices)), 4) == expected, "{plan} over a slow link");
        }
        set_link(before).unwrap();
    });
}
