//! The choice of a token.

use meshwork_graph::philox;

/// How the next token is chosen. The choice depends on the logits, the seed and the number of the token alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it: below 1 likely tokens become likelier; at 0 the likeliest is always taken. Default 1.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are chosen from (Fan et al., 2018).
    pub top_k: Option<usize>,
    /// Only the likeliest tokens are chosen from that together have this probability, the one that exceeds it included
    /// (Holtzman et al., 2020).
    pub top_p: Option<f64>,
    /// Which of all texts is written. Default 0.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 0 }
    }
}

impl Sampling {
    /// Token number `index` of a text. Of equal logits the first counts as the likelier.
    ///
    /// # Panics
    /// When there are no logits.
    pub fn choose(&self, logits: &[f32], index: u64) -> u32 {
        assert!(!logits.is_empty(), "a choice between no tokens");
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        if self.temperature <= 0.0 {
            return order[0] as u32;
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX).max(1));
        let largest = f64::from(logits[order[0]]);
        let mut weights: Vec<f64> =
            order.iter().map(|&i| ((f64::from(logits[i]) - largest) / self.temperature).exp()).collect();
        if let Some(top_p) = self.top_p {
            let wanted = top_p * weights.iter().sum::<f64>();
            let mut sum = 0.0;
            let enough = weights.iter().position(|weight| {
                sum += weight;
                sum >= wanted
            });
            weights.truncate(enough.map_or(weights.len(), |last| last + 1));
        }
        let key = philox::site_key(self.seed, "generate", 0);
        let chance = (philox::bits(key, index) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = chance * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        order[chosen.unwrap_or(weights.len() - 1)] as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each token is chosen in 10,000 choices.
    fn counts(sampling: Sampling, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        (0..10_000).for_each(|index| counts[sampling.choose(logits, index) as usize] += 1);
        counts
    }

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    #[test]
    fn tokens_are_as_frequent_as_they_are_likely() {
        let total: f64 = LOGITS.iter().map(|x| f64::from(*x).exp()).sum();
        for (count, logit) in counts(Sampling::default(), &LOGITS).iter().zip(LOGITS) {
            let expected = 10_000.0 * f64::from(logit).exp() / total;
            assert!((*count as f64 - expected).abs() < 5.0 * expected.sqrt(), "{count} for {expected}");
        }
    }

    #[test]
    fn a_temperature_of_0_takes_the_likeliest() {
        assert_eq!(counts(Sampling { temperature: 0.0, ..Sampling::default() }, &LOGITS), [0, 10_000, 0, 0]);
        assert_eq!(Sampling { temperature: 0.0, ..Sampling::default() }.choose(&[1.0, 1.0], 0), 0);
    }

    #[test]
    fn low_temperatures_sharpen() {
        let [warm, cold] = [1.0, 0.5].map(|t| counts(Sampling { temperature: t, ..Sampling::default() }, &LOGITS));
        assert!(cold[1] > warm[1] && cold[0] < warm[0]);
    }

    #[test]
    fn only_the_likeliest_are_chosen_from() {
        let top_k = counts(Sampling { top_k: Some(2), ..Sampling::default() }, &LOGITS);
        assert!(top_k[1] > top_k[2] && top_k[2] > 0 && top_k[0] + top_k[3] == 0);
        // The likeliest has a probability of 0.64, the first two together 0.88.
        let top_p = |p: f64| counts(Sampling { top_p: Some(p), ..Sampling::default() }, &LOGITS);
        assert_eq!(top_p(0.6), [0, 10_000, 0, 0]);
        assert!(top_p(0.7)[2] > 0 && top_p(0.7)[0] == 0);
        assert!(top_p(1.0).iter().all(|&count| count > 0));
    }

    #[test]
    fn seeds_give_other_texts() {
        let text =
            |seed| (0..20).map(|i| Sampling { seed, ..Sampling::default() }.choose(&LOGITS, i)).collect::<Vec<_>>();
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
