"""Broken implementations that must not survive: each one is refuted by an audit or by a test.

A mutant is an edit of the source; the edited package is run in a process of its own. Whoever moves
the code that a mutant edits moves the mutant too: one that no longer applies is a failure.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mutants.md"
REFUTED = 3
FAILED = 1


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes
    ----------
    name, breaks
        What it is called, and what it does, in words.
    file, old, new
        The text in ``src/dpadmm/<file>``, which must be there once, and what takes its place.
    killer
        Arguments of ``dpadmm audit``, or a test as pytest names it.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    killer: tuple[str, ...] | str

    @property
    def by_audit(self):
        return not isinstance(self.killer, str)

    def source(self):
        """The edited text."""
        text = (ROOT / "src" / "dpadmm" / self.file).read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self.name}: {self.old!r} must be in {self.file} once"
        edited = text.replace(self.old, self.new)
        compile(edited, self.file, "exec")
        return edited


def audit(*arguments):
    return tuple(" ".join(arguments).split())


# The release of a message with Gaussian noise on it, as its mechanism draws it.
OUTPUT = 'noise.add_gaussian(values, sigma[:, None, None, None], parties, t, "output")'
POSITIONS = "tests/ledger/test_positions.py"
SHARE = "share = sigma / math.sqrt(summation.parties - summation.colluders)"
LONG = audit("--algorithm pr-admm --rounds 50 --samples 500")
SHORT = "--samples 500 --rounds 4"
MASKS = "tests/federation/test_masks.py"
SUMS = "tests/federation/test_sum_exchange.py"
SAME = "tests/federation/test_same_sums.py"
TREE = "tests/federation/test_tree_sums.py"
KEYS = "tests/federation/test_session_keys.py"
STUDY = "tests/studies/test_study.py"
DESCRIBED = "tests/studies/test_describe.py"
REGRESSED = "tests/studies/test_glm.py"
WORST = "tests/studies/test_worst_rows.py"

MUTANTS = [
    # How much noise there is --------------------------------------------------------------------
    Mutant(
        "late-round",
        "half the noise in round 11 of 50",
        "privacy/mechanisms.py",
        OUTPUT,
        OUTPUT.replace("sigma[", "(sigma / (2 if t == 11 else 1))["),
        LONG,
    ),
    Mutant(
        "party-one",
        "half the noise at party 1",
        "privacy/mechanisms.py",
        OUTPUT,
        OUTPUT.replace("sigma[", "(sigma * np.where(parties == 1, 0.5, 1.0))["),
        LONG,
    ),
    Mutant(
        "half-the-coordinates",
        "no noise on the first half of the coordinates",
        "privacy/mechanisms.py",
        OUTPUT,
        f"{OUTPUT}\n    noisy[..., : values.shape[-1] // 2] = values[..., : values.shape[-1] // 2]",
        LONG,
    ),
    Mutant(
        "one-output",
        "no noise on the last of several outputs",
        "privacy/mechanisms.py",
        OUTPUT,
        f"{OUTPUT}\n    noisy[:, :, 1:] = values[:, :, 1:]",
        audit("--algorithm pr-admm --outputs 3", SHORT),
    ),
    Mutant(
        "uniform",
        "uniform noise of the right variance",
        "privacy/mechanisms.py",
        OUTPUT,
        f"{OUTPUT}\n    noisy = values + sigma[:, None, None, None] * math.sqrt(12) * "
        "(expit((noisy - values) / sigma[:, None, None, None] * 1.702) - 0.5)",
        audit("--algorithm pr-admm", SHORT),
    ),
    Mutant(
        "late-round-gradient",
        "half the gradient noise in round 11 of 50",
        "privacy/mechanisms.py",
        "scale = perturbation.scale[:, None, None, None]",
        "scale = (perturbation.scale / (2 if t == 11 else 1))[:, None, None, None]",
        audit("--algorithm dvp --option noise=exp-norm --rounds 50 --samples 500"),
    ),
    Mutant(
        "minima-without-noise",
        "the noise of approximate minima perturbation dropped",
        "privacy/mechanisms.py",
        'noisy = noise.add_gaussian(values, output_sigma, parties, t, "output")',
        "noisy = values",
        audit("--algorithm r-admm --option noise=exp-norm", SHORT),
    ),
    Mutant(
        "gamma-shape",
        "the radius of exp-norm noise drawn with shape d - 1",
        "privacy/noise.py",
        "radius = stream.gamma(shape[-1], size",
        "radius = stream.gamma(shape[-1] - 1, size",
        audit("--algorithm dvp --option noise=exp-norm", SHORT),
    ),
    Mutant(
        "full-gradient",
        "half the noise on the full gradient of ps-admm",
        "privacy/mechanisms.py",
        "full, difference = perturbation.gradient_sigma, perturbation.difference_sigma",
        "full, difference = perturbation.gradient_sigma / 2, perturbation.difference_sigma",
        audit("--algorithm ps-admm --option inner_steps=1 --option form=one-release", SHORT),
    ),
    Mutant(
        "batch-differences",
        "half the noise on the batch differences of ps-admm",
        "privacy/mechanisms.py",
        "difference * math.sqrt(outputs)",
        "difference / 2 * math.sqrt(outputs)",
        audit("--algorithm ps-admm --option inner_steps=2 --option form=one-release", SHORT),
    ),
    Mutant(
        "outputs-batch-differences",
        "sqrt(outputs) forgotten in the noise on batch differences",
        "privacy/mechanisms.py",
        "difference * math.sqrt(outputs)",
        "difference",
        audit("--algorithm ps-admm --outputs 3 --option inner_steps=2", SHORT)
        + audit("--option form=one-release"),
    ),
    # Whose noise it is --------------------------------------------------------------------------
    Mutant(
        "same-in-every-round",
        "noise reused over rounds",
        "privacy/mechanisms.py",
        OUTPUT,
        OUTPUT.replace(", t, ", ", 0, "),
        LONG,
    ),
    Mutant(
        "same-in-every-round-deployed",
        "noise of OpenDP's sampler kept and reused over rounds",
        "privacy/noise.py",
        "        return noisy.reshape(values.shape)",
        '        kept = self.__dict__.setdefault("kept", {})\n'
        "        drawn = noisy.reshape(values.shape) - values\n"
        "        return values + kept.setdefault((values.shape, purpose), drawn)",
        LONG,
    ),
    Mutant(
        "one-key-simulated",
        "one key for all draws of a simulation",
        "privacy/noise.py",
        "np.broadcast_arrays(*limbs, run, party, t, *purpose.encode())",
        "np.broadcast_arrays(*limbs, 0 * run, 0 * party, 0 * t, 7)",
        LONG,
    ),
    Mutant(
        "one-key-deployed",
        "one key for all draws of a deployment",
        "privacy/noise.py",
        'key = int.from_bytes(os.urandom(32), "little")',
        "key = 7",
        audit("--algorithm dvp --option noise=exp-norm", SHORT),
    ),
    Mutant(
        "same-at-every-party",
        "all parties draw from one stream",
        "privacy/noise.py",
        "np.broadcast_arrays(*limbs, run, party, t, *purpose.encode())",
        "np.broadcast_arrays(*limbs, run, 0 * party, t, *purpose.encode())",
        audit("--algorithm pr-admm", SHORT),
    ),
    Mutant(
        "same-for-every-purpose",
        "gradient noise and output noise drawn from one stream",
        "privacy/noise.py",
        "np.broadcast_arrays(*limbs, run, party, t, *purpose.encode())",
        "np.broadcast_arrays(*limbs, run, party, t, 7)",
        audit("--algorithm dvp --option noise=gaussian", SHORT),
    ),
    Mutant(
        "seeded-deployment",
        "a deployment draws simulated noise",
        "privacy/noise.py",
        'return DiscreteNoise() if find_spec("opendp") else SecureNoise()',
        "return SimulatedNoise(7)",
        audit("--algorithm pr-admm", SHORT),
    ),
    # How far a row moves what is released -------------------------------------------------------
    Mutant(
        "outputs-pr-admm",
        "sqrt(outputs) forgotten in the sensitivity of pr-admm",
        "algorithms/base.py",
        "= (1 + SAMPLER_ALLOWANCE) * np.sqrt(site.outputs) * reach",
        "= (1 + SAMPLER_ALLOWANCE) * reach",
        audit("--algorithm pr-admm --outputs 3", SHORT),
    ),
    Mutant(
        "outputs-public-norm",
        "sqrt(outputs) forgotten where noise follows the public norm",
        "privacy/mechanisms.py",
        "sigma = reach * (np.sqrt(values.shape[2]) / mu)[:, None, None]",
        "sigma = reach * (1 / mu)[:, None, None]",
        audit("--algorithm pr-admm --outputs 3 --option public_norm=true", SHORT),
    ),
    Mutant(
        "outputs-r-admm",
        "sqrt(outputs) forgotten in the sensitivity of r-admm",
        "algorithms/base.py",
        "= (1 + SAMPLER_ALLOWANCE) * np.sqrt(site.outputs) * reach",
        "= (1 + SAMPLER_ALLOWANCE) * reach",
        audit("--algorithm r-admm --outputs 3 --option noise=output", SHORT),
    ),
    Mutant(
        "outputs-ps-admm",
        "sqrt(outputs) forgotten in the sensitivity of ps-admm",
        "algorithms/ps_admm.py",
        "together = (1 + _ROUNDING) * math.sqrt(site.outputs)",
        "together = 1 + _ROUNDING",
        audit("--algorithm ps-admm --outputs 3 --option inner_steps=1", SHORT),
    ),
    Mutant(
        "outputs-counted-once",
        "several perturbed minimisers charged as one",
        "privacy/mechanisms.py",
        "Composed((exact, inexact) * self.outputs)",
        "Composed((exact, inexact))",
        audit("--algorithm dvp --outputs 3 --option noise=exp-norm", SHORT),
    ),
    Mutant(
        "tolerance",
        "the solver's 2 tol / m left out of the sensitivity",
        "privacy/sensitivity.py",
        "(gradient + 2 * reals(tolerance)) / reals(convexity)",
        "gradient / reals(convexity)",
        audit("--algorithm pr-admm", SHORT),
    ),
    Mutant(
        "convexity",
        "the sensitivity counts with twice the strong convexity",
        "algorithms/base.py",
        "        convexity,\n        weight=site.weight,\n",
        "        2 * convexity,\n        weight=site.weight,\n",
        audit("--algorithm pr-admm", SHORT),
    ),
    Mutant(
        "weights",
        "the sensitivity leaves out the party's weight",
        "algorithms/base.py",
        "        weight=site.weight,\n",
        "        weight=1.0,\n",
        audit("--algorithm pr-admm --rows 20", SHORT),
    ),
    Mutant(
        "corrected-slope",
        "pdml counts with the slope of the loss before its correction",
        "problem/losses.py",
        "slope_bound=abs(start + tilt) + loss.slope_range / 2,",
        "slope_bound=loss.slope_bound,",
        audit("--algorithm pdml", SHORT),
    ),
    Mutant(
        "public-norm",
        "half of the factor that the public norm allows",
        "privacy/sensitivity.py",
        "np.append(bounds, 2.0)[index]",
        "np.append(bounds, 2.0)[index] / 2",
        audit("--algorithm pr-admm --option public_norm=true", SHORT),
    ),
    Mutant(
        "unclipped-rows",
        "rows are laid out without being clipped",
        "problem/rows.py",
        "parties = [(clip_rows(rows), np.where",
        "parties = [(rows, np.where",
        "tests/problem/test_rows.py::test_rows_that_break_the_assumption_are_mended_one_by_one",
    ),
    Mutant(
        "clipped-before-the-intercept",
        "rows are clipped before the constant is appended",
        "problem/rows.py",
        "        dense[:, -1] = intercept_scale * (data_norm / unit)\n"
        '    norms = np.sqrt(np.einsum("ij,ij->i", dense, dense))\n'
        "    dense /= np.maximum(norms, 1.0)[:, None]\n",
        "        dense[:, -1] = 0.0\n"
        '    norms = np.sqrt(np.einsum("ij,ij->i", dense, dense))\n'
        "    dense /= np.maximum(norms, 1.0)[:, None]\n"
        "    if fit_intercept:\n"
        "        dense[:, -1] = intercept_scale * (data_norm / unit)\n",
        "tests/problem/test_rows.py::test_the_intercept_counts_towards_the_norm",
    ),
    # What it costs ------------------------------------------------------------------------------
    Mutant(
        "delta-of-another",
        "noise calibrated to the delta of another party",
        "algorithms/base.py",
        "self.ideal_delta,",
        "self.ideal_delta[::-1],",
        audit("--algorithm pr-admm", SHORT),
    ),
    Mutant(
        "rows-of-a-person",
        "rows per person left out of a calibration",
        "privacy/calibration.py",
        "sigma: Array = _MARGIN * rows_per_person * sensitivity_ * math.sqrt(inverse) / mu",
        "sigma: Array = _MARGIN * sensitivity_ * math.sqrt(inverse) / mu",
        audit("--algorithm pr-admm --rows-per-person 2", SHORT),
    ),
    Mutant(
        "rounds",
        "every round gets the whole budget",
        "privacy/calibration.py",
        "sigma: Array = _MARGIN * rows_per_person * sensitivity_ * math.sqrt(inverse) / mu",
        "sigma: Array = _MARGIN * rows_per_person * sensitivity_ / mu",
        audit("--algorithm pr-admm", SHORT),
    ),
    Mutant(
        "rounded-to-nearest",
        "a calibrated noise rounded to six digits, up or down",
        "privacy/calibration.py",
        "_MARGIN * rows_per_person * sensitivity_ * math.sqrt(inverse) / mu",
        "np.vectorize(lambda x: float(f'{x:.6g}'))("
        "rows_per_person * sensitivity_ * math.sqrt(inverse) / mu)",
        "tests/privacy/test_calibration.py::test_gaussian_calibration_meets_the_budget",
    ),
    Mutant(
        "mu-rounded-up",
        "mu of a budget rounded up",
        "privacy/gaussian.py",
        "result: Array = feasible.reshape(shape)[()]",
        "result: Array = (feasible * (1 + 1e-9)).reshape(shape)[()]",
        "tests/privacy/test_curves.py::test_mu_is_rounded_down",
    ),
    Mutant(
        "kappa-charged",
        "kappa left out of what Gaussian objective perturbation is charged",
        "privacy/mechanisms.py",
        "else GaussianObjectivePerturbation(mu, kappa)",
        "else GaussianObjectivePerturbation(mu, 0.0)",
        audit("--algorithm dvp --option noise=gaussian", SHORT),
    ),
    Mutant(
        "kappa-in-the-theorem",
        "the Jacobian's term dropped from Theorem OP",
        "privacy/curves.py",
        "return orders * (mu * mu) / 2 + objective_jacobian_rdp(orders, event.kappa, rows)",
        "return orders * (mu * mu) / 2",
        "tests/privacy/test_curves.py::test_theorem_op_bounds_the_true_divergence_in_one_dimension",
    ),
    Mutant(
        "kappa-in-the-calibration",
        "the Jacobian's term dropped from the noise of Gaussian objective perturbation",
        "privacy/calibration.py",
        "spare - np.log1p(-1 / a) - weight * jacobian",
        "spare - np.log1p(-1 / a) - 0 * jacobian",
        audit("--algorithm dvp --rows 8 --option noise=gaussian", SHORT),
    ),
    Mutant(
        "kappa-of-pure",
        "ln(1 + kappa) left out of what a pure release is charged",
        "privacy/mechanisms.py",
        "sum_up((mu, float(jacobian_epsilon(kappa))))",
        "mu",
        "tests/privacy/test_mechanisms.py::test_objective_perturbation_is_charged_by_its_theorem",
    ),
    Mutant(
        "label-flips",
        "labels flipped too rarely",
        "privacy/mechanisms.py",
        "expit(-strength)",
        "expit(-1.2 * strength)",
        audit("--mechanism randomized-response"),
    ),
    Mutant(
        "with-replacement",
        "batches drawn with replacement",
        "privacy/noise.py",
        "stream.choice(rows, batch, replace=False, shuffle=False)",
        "stream.choice(rows, batch, replace=True, shuffle=False)",
        audit("--algorithm ps-admm --option inner_steps=4 --option batch_size=4", SHORT),
    ),
    Mutant(
        "sampling-rate",
        "batches charged as if drawn from twice the rows",
        "privacy/calibration.py",
        "                    int(self.rows[place]),\n",
        "                    2 * int(self.rows[place]),\n",
        audit("--algorithm ps-admm --option inner_steps=4 --option batch_size=4", SHORT),
    ),
    # Whose noise is counted on ------------------------------------------------------------------
    Mutant(
        "clip-dp-gd",
        "the slopes of a row over several outputs are not clipped in dp-gd",
        "algorithms/dp_gd.py",
        "        bound = site.loss.slope_bound\n",
        "        bound = None\n",
        audit("--algorithm dp-gd --option noise=own --outputs 3", SHORT),
    ),
    Mutant(
        "clip-over-rows",
        "the slopes of an output are clipped over rows, not those of a row over outputs",
        "solvers/block.py",
        "    slopes *= norms[..., None]\n",
        "    slopes *= (bound / np.maximum(np.linalg.norm(slopes, axis=1), bound))[:, None]\n",
        "tests/algorithms/test_dp_gd.py"
        "::test_no_pair_of_rows_moves_a_summand_further_than_the_sensitivity",
    ),
    Mutant(
        "outputs-kept-in-dp-gd",
        "dp-gd pays sqrt(outputs) for slopes that are clipped",
        "algorithms/dp_gd.py",
        "total: Array = exact + summing",
        "total: Array = math.sqrt(site.outputs) * (exact + summing)",
        "tests/algorithms/test_dp_gd.py::test_one_row_moves_a_summand_by_almost_the_sensitivity",
    ),
    Mutant(
        "free-centring",
        "the rounds after centring have the whole budget",
        "algorithms/dp_gd.py",
        "        relative = (first, first * math.sqrt(ratio))\n",
        "        relative = (first, budget.sigma(1.0, np.ones(later)))\n",
        audit("--algorithm dp-gd --option noise=own --option center=on", SHORT),
    ),
    Mutant(
        "half-a-mean-row",
        "half of the sensitivity of the sum of the rows",
        "algorithms/dp_gd.py",
        "* gradient_sensitivity(site.rows, weight=site.weight)\n",
        "* gradient_sensitivity(site.rows, weight=site.weight) / 2\n",
        audit("--algorithm dp-gd --option noise=own --option center=on", SHORT),
    ),
    Mutant(
        "map-of-rows",
        "the map of rows comes from the rows, not from the sum that was released",
        "algorithms/dp_gd.py",
        "            model = mapped_back(state.model, state.shift)\n",
        "            rows = workspace.mean_rows()[:, None, None]\n"
        "            least = site.least_constant\n"
        "            shift = centring_map(rows, self.mean_row_noise, least)\n"
        "            state = state._replace(shift=np.repeat(shift, site.runs, axis=1))\n"
        "            model = mapped_back(state.model, state.shift)\n",
        "tests/algorithms/test_centring.py"
        "::test_one_row_moves_a_summand_by_no_more_than_its_sensitivity",
    ),
    Mutant(
        "any-length",
        "a mapped row is divided by its norm, however small that is",
        "problem/centring.py",
        "np.maximum(found, LEAST_LENGTH**2, out=found)",
        "np.maximum(found, 0.0, out=found)",
        "tests/algorithms/test_centring.py::test_no_mapped_row_is_longer_than_one",
    ),
    Mutant(
        "share-of-everybody",
        "shares of the noise for all parties honest",
        "privacy/mechanisms.py",
        SHARE,
        "share = sigma / math.sqrt(summation.parties)",
        audit("--algorithm dp-gd --option noise=shared", SHORT),
    ),
    Mutant(
        "share-without-root",
        "shares of the noise added up as if they were not drawn apart",
        "privacy/mechanisms.py",
        SHARE,
        "share = sigma / (summation.parties - summation.colluders)",
        audit("--algorithm dp-gd --option noise=shared", SHORT),
    ),
    Mutant(
        "skipped-share",
        "no share of the noise in every other round",
        "privacy/mechanisms.py",
        "noise.add_gaussian_steps(values, share, ",
        "noise.add_gaussian_steps(values, share if t % 2 else summation.step, ",
        audit("--algorithm dp-gd --option noise=shared", SHORT),
    ),
    Mutant(
        "rounding-of-summands",
        "rounding to the grid left out of the sensitivity of a summand",
        "algorithms/summed_gaussian.py",
        "sensitivity = exact + shared.step * math.sqrt(numbers)",
        "sensitivity = exact",
        "tests/algorithms/test_dp_gd.py::test_rounding_to_the_grid_is_counted",
    ),
    Mutant(
        "error-of-sums",
        "the rounding error of sums over rows left out of the sensitivity of dp-gd",
        "algorithms/dp_gd.py",
        "total: Array = exact + summing",
        "total: Array = exact",
        "tests/algorithms/test_dp_gd.py::test_the_error_of_sums_is_counted",
    ),
    Mutant(
        "alone-as-together",
        "a ledger charges shared noise as if it held against all others",
        "ledger/balance.py",
        "apart = Fraction(self.filter.cost(alone(event)))\n            left",
        "apart = cost\n            left",
        "tests/ledger/test_sqlite.py::test_a_ledger_keeps_both_sums",
    ),
    Mutant(
        "covered-again",
        "a message that was stored is covered with other masks",
        "run/engine.py",
        "        return release_again(np.stack(known), events)\n",
        "        return exchange.cover(release_again(np.stack(known), events), t)\n",
        "tests/run/test_engine_ledger.py::test_what_was_covered_is_sent_again_and_not_covered_again",
    ),
    # When it is paid ----------------------------------------------------------------------------
    Mutant(
        "charge-after-release",
        "a round is reserved after its rows were read",
        "run/engine.py",
        "    for ledger, event in zip(ledgers, events, strict=True):\n"
        "        ledger.reserve(t, event)\n"
        "    stored = [ledger.committed(t) for ledger in ledgers]\n"
        "    known = [values for values in stored if values is not None]\n"
        "    if len(known) == len(stored):\n"
        "        return release_again(np.stack(known), events)\n"
        "    message = algorithm.local_step(state, workspace, site, noise, t)\n",
        "    message = algorithm.local_step(state, workspace, site, noise, t)\n"
        "    for ledger, event in zip(ledgers, events, strict=True):\n"
        "        ledger.reserve(t, event)\n"
        "    stored = [ledger.committed(t) for ledger in ledgers]\n",
        "tests/run/test_engine.py::test_every_round_is_reserved_computed_committed_and_then_sent",
    ),
    Mutant(
        "no-reservation",
        "rounds are not reserved in the ledger",
        "run/engine.py",
        "        ledger.reserve(t, event)\n",
        "        pass\n",
        "tests/run/test_engine.py::test_a_ledger_that_refuses_stops_the_round_before_rows_are_read",
    ),
    Mutant(
        "second-draw",
        "a party that had sent a round draws it anew because another one had not",
        "run/engine.py",
        "        if kept is None:\n            ledger.commit(t, values[place])\n",
        "        if True:\n            ledger.commit(t, values[place])\n",
        "tests/run/test_engine_ledger.py::test_a_party_that_committed_keeps_its_message",
    ),
    Mutant(
        "cheaper-announcement",
        "what is released may differ from what was announced",
        "run/engine.py",
        "if message.events != events:",
        "if False:",
        "tests/run/test_engine.py::test_a_release_that_was_announced_as_cheaper_is_not_sent",
    ),
    Mutant(
        "missed-tolerance",
        "a solve that missed its tolerance is released",
        "privacy/mechanisms.py",
        "if not (residual <= tolerance[:, None, None]).all():",
        "if False:",
        "tests/privacy/test_mechanisms.py::test_a_residual_beyond_the_charge_releases_nothing",
    ),
    # Sums of which nothing else is seen ----------------------------------------------------------
    Mutant(
        "one-mask-for-all-rounds",
        "the key of a pair is the same in every round",
        "federation/keys.py",
        "            _number(t),\n",
        "            _number(0),\n",
        f"{MASKS}::test_no_difference_of_two_words_is_predictable_to_a_lost_colluder",
    ),
    Mutant(
        "sums-not-bound",
        "masks vanish also where parties were told different sums",
        "federation/keys.py",
        "            sums,\n",
        '            b"",\n',
        f"{MASKS}::test_views_that_differ_leave_uniform_words_in_the_sum",
    ),
    Mutant(
        "training-not-bound",
        "masks of an evaluation vanish also where parties were told different sums in the training",
        "federation/exchange.py",
        "DecodedSums() if decoded is None else decoded.copy()",
        "DecodedSums()",
        f"{SUMS}::test_an_evaluation_goes_on_from_the_sums_of_the_training",
    ),
    Mutant(
        "digests-for-any-run",
        "a digest of all sums is believed whatever run it was signed for",
        "federation/same_sums.py",
        "{_VERSION}\\n{run.hex()}\\n{name}",
        "{_VERSION}\\n{name}",
        f"{SAME}::test_no_server_makes_a_digest_up",
    ),
    Mutant(
        "digests-without-pins",
        "a digest of all sums is believed under any certificate of the name",
        "federation/same_sums.py",
        "if fault or name not in self._pins:",
        "if True:",
        f"{SAME}::test_only_the_pinned_certificate_signs",
    ),
    Mutant(
        "members-not-bound",
        "masks vanish also where parties believe in different certificates",
        "federation/keys.py",
        '(member.name.encode("ascii"), member.certificate, member.public_key)',
        '(member.name.encode("ascii"), member.public_key)',
        f"{MASKS}::test_views_that_differ_leave_uniform_words_in_the_sum",
    ),
    Mutant(
        "pins-not-looked-at",
        "a key is believed under any certificate that signed it",
        "federation/keys.py",
        "if hashlib.sha256(shown).hexdigest() != self._pins.get(name):",
        "if not shown:",
        f"{KEYS}::test_a_certificate_of_the_same_authority_and_name_is_not_believed",
    ),
    Mutant(
        "keys-for-any-run",
        "a key is believed whatever run it was signed for",
        "federation/keys.py",
        "{_KEY_VERSION}\\n{run.hex()}\\n",
        "{_KEY_VERSION}\\n",
        f"{KEYS}::test_a_key_for_something_else_is_not_believed",
    ),
    Mutant(
        "second-draw-under-a-mask",
        "a node whose ledger was put back draws again under the masks of rounds that it sent",
        "federation/keys.py",
        "if sent > released:",
        "if False:",
        f"{KEYS}::test_a_key_remembers_what_was_sent_under_it",
    ),
    Mutant(
        "new-key-in-a-view",
        "a node that lost its key makes another one in the midst of a view",
        "federation/keys.py",
        "if private is None and (released or self._name in self.ring):",
        "if False:",
        f"{KEYS}::test_a_lost_key_ends_the_view_for_its_owner",
    ),
    # Sums along a tree ---------------------------------------------------------------------------
    Mutant(
        "tree-hands-vectors-on",
        "a node hands on its own masked vector without those below it",
        "federation/transport/tree.py",
        "if not self._children:\n            return own",
        "if True:\n            return own",
        f"{TREE}::test_everybody_has_the_exact_sum_and_sees_nothing_else",
    ),
    Mutant(
        "tree-adds-again",
        "a node that is started again adds up anew what it has told its parent",
        "federation/transport/tree.py",
        "if stored is not None:\n            return stored",
        "if False:\n            return stored",
        f"{TREE}::test_one_that_is_killed_between_two_sends_tells_the_same_bytes",
    ),
    Mutant(
        "tree-some-keys",
        "a node draws before every party's key is there",
        "federation/transport/tree.py",
        "while told < len(ring.members):",
        "while told < len(ring.members) // 2:",
        f"{TREE}::test_one_that_keeps_keys_back_gets_no_masked_vector",
    ),
    Mutant(
        "tree-for-everybody",
        "what goes up is told to all neighbours",
        "federation/transport/tree.py",
        'self._up_topic, self._down_topic = f"{self._topic}-up", f"{self._topic}-down"',
        'self._up_topic, self._down_topic = self._topic, f"{self._topic}-down"',
        f"{TREE}::test_everybody_has_the_exact_sum_and_sees_nothing_else",
    ),
    Mutant(
        "tree-waits-for-ended",
        "a node waits for the sum of one that has ended",
        "federation/transport/tree.py",
        "return t >= self._done.get(name, t + 1)",
        "return t > self._done.get(name, t + 1)",
        f"{TREE}::test_one_that_ended_before_the_sum_came_is_not_waited_for",
    ),
    Mutant(
        "tree-by-number",
        "ties between roots are broken by the order of the parties",
        "problem/site.py",
        "(hops[each].max(), names[each])",
        "(hops[each].max(), each)",
        "tests/problem/test_spanning_tree.py::test_the_order_of_parties_and_links_changes_nothing",
    ),
    Mutant(
        "smaller-crowd",
        "how many parties may collude is worked out anew after a loss",
        "federation/config.py",
        'options["colluders"] = summation.colluders',
        'options.pop("colluders", None)',
        "tests/federation/test_node_shared.py"
        "::test_cutting_parties_off_never_lowers_how_many_may_collude",
    ),
    Mutant(
        "forgotten-sum",
        "a part of the rows is charged its last run alone",
        "ledger/balance.py",
        "spent = piece.spent + cost if inside else piece.spent",
        "spent = cost if inside else piece.spent",
        f"{POSITIONS}::test_a_run_on_all_rows_counts_for_every_part",
    ),
    Mutant(
        "wrong-part",
        "an evaluation is charged to the rows that were trained on",
        "run/options.py",
        "return RowRange(self._edge(rows), rows) if self.holdout else None",
        "return RowRange(0, rows - self._edge(rows)) if self.holdout else None",
        "tests/run/test_split.py::test_the_last_block_is_kept_out",
    ),
    Mutant(
        "parts-of-a-person",
        "releases that are not Gaussian count for their part, where a person may have rows in both",
        "ledger/balance.py",
        'return self.policy.rows_per_person == 1 or self.filter.name == "gaussian"',
        "return True",
        f"{POSITIONS}::test_other_releases_add_up_for_a_person_with_several_rows",
    ),
    Mutant(
        "unsaid-evaluation",
        "an evaluation of the rows that were trained on is not part of the run's epsilon",
        "run/session.py",
        "return _added(events, others.trained_on, counting), ()",
        "return _added(events, others.trained_on), ()",
        "tests/test_estimators.py::test_probabilities_are_fitted_within_the_budget",
    ),
    Mutant(
        "half-a-move",
        "a replaced row is charged as if it left its cell and entered none",
        "evaluation/release.py",
        "scale * (1 + SAMPLER_ALLOWANCE) * grid.sensitivity",
        "scale * (1 + SAMPLER_ALLOWANCE) * grid.sensitivity / math.sqrt(2)",
        "tests/evaluation/test_release.py"
        "::test_replacing_a_row_moves_a_message_by_its_sensitivity_at_most",
    ),
    # Studies ------------------------------------------------------------------------------------
    Mutant(
        "cell-twice",
        "a row enters its cell of a table twice",
        "studies/describe.py",
        "return np.bincount(cells, minlength=math.prod(self.shape)).astype(np.float64)",
        "return 2.0 * np.bincount(cells, minlength=math.prod(self.shape))",
        audit("--mechanism describe --samples 20000"),
    ),
    Mutant(
        "shares-beyond-one",
        "the parts of a study may cost more than its budget together",
        "studies/study.py",
        "sum(given) > 1 + _ROUNDED",
        "sum(given) > 2 + _ROUNDED",
        f"{STUDY}::test_shares_that_add_up_to_more_than_the_budget_are_refused",
    ),
    Mutant(
        "round-for-nothing",
        "a round of a study is charged its part of mu, not of mu^2",
        "studies/study.py",
        "return math.sqrt(share) * self.sensitivity, self.sigma",
        "return share * self.sensitivity, self.sigma",
        f"{STUDY}::test_all_rounds_together_cost_what_was_given",
    ),
    Mutant(
        "held-out-study",
        "a node's study reads the first rows, also those that are held out",
        "federation/node_study.py",
        "first, stop = setup.agreed.run.wish.split.train(len(rows)) or (0, len(rows))",
        "first, stop = 0, len(rows)",
        "tests/federation/test_node_studies.py::test_rows_that_are_held_out_are_not_laid_out",
    ),
    Mutant(
        "free-square",
        "squares of columns weigh more than is free",
        "studies/describe.py",
        "SQUARE_WEIGHT: Final = 2.77",
        "SQUARE_WEIGHT: Final = 4.0",
        f"{DESCRIBED}::test_no_row_moves_a_part_by_more_than_its_sensitivity",
    ),
    Mutant(
        "long-products",
        "rows beyond the public norm are not scaled to it",
        "studies/describe.py",
        "values = values * (self.norm / np.maximum(lengths, self.norm))[:, None]",
        "values = values + 0 * lengths[:, None]",
        f"{DESCRIBED}::test_no_row_moves_a_part_by_more_than_its_sensitivity",
    ),
    Mutant(
        "unbounded-cells",
        "a value beyond its bounds is added up as it is",
        "studies/describe.py",
        "values = np.clip(rows[:, self.place], -1.0, 1.0)",
        "values = rows[:, self.place]",
        f"{DESCRIBED}::test_no_row_moves_a_part_by_more_than_its_sensitivity",
    ),
    Mutant(
        "shares-of-two",
        "the rounds of a regression get two budgets",
        "studies/study.py",
        "return math.sqrt(self.share) / self.sensitivity",
        "return math.sqrt(2 * self.share) / self.sensitivity",
        audit("--mechanism infer-binomial --samples 20000"),
    ),
    Mutant(
        "long-rows",
        "rows of a regression are not shortened to their bound",
        "studies/families.py",
        'factor = 1.0 / np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", rows, rows)))',
        "factor = np.ones(len(rows))",
        f"{REGRESSED}::test_no_pair_of_rows_moves_a_round_by_more_than_it_says",
    ),
    Mutant(
        "columns-alone",
        "a first linear round shortens the columns of a row, and not its response",
        "studies/glm.py",
        "w /= np.maximum(1.0, longest)[:, None]",
        "w[:, :-1] /= np.maximum(1.0, longest)[:, None]",
        audit("--mechanism infer-gaussian --samples 20000"),
    ),
    Mutant(
        "residuals-unclipped",
        "residuals of a second linear round are not clipped",
        "studies/glm.py",
        "residual = np.clip(residual / path.clip, -1.0, 1.0)",
        "residual = residual / path.clip",
        audit("--mechanism infer-gaussian --samples 20000"),
    ),
    Mutant(
        "counts-unclipped",
        "residuals of counts are clipped at twice their bound",
        "studies/families.py",
        "psi = np.clip(np.nan_to_num(response) - rate, -self.clip, self.clip)",
        "psi = np.clip(np.nan_to_num(response) - rate, -2 * self.clip, 2 * self.clip)",
        audit("--mechanism infer-poisson --samples 20000"),
    ),
    Mutant(
        "person-in-parts",
        "the periods of a person are shortened one by one, and not their sum",
        "studies/families.py",
        "slopes /= np.maximum(self.reach, size)[:, None]",
        "slopes /= np.maximum(self.reach, size / at_risk.sum(axis=1))[:, None]",
        audit("--mechanism infer-survival --samples 20000"),
    ),
    Mutant(
        "curvature-in-parts",
        "the curvature of a person is not shortened",
        "studies/families.py",
        "curvature *= self.curvature_reach / np.maximum(self.curvature_reach, size)[:, None]",
        "curvature *= self.curvature_reach / np.maximum(self.curvature_reach, 0 * size)[:, None]",
        f"{WORST}::test_sums_are_those_that_are_written_down",
    ),
    Mutant(
        "heavy-curvature",
        "the curvature of a logistic regression weighs more than is free",
        "studies/families.py",
        "curving = 4.7",
        "curving = 9.4",
        f"{REGRESSED}::test_the_curvature_of_a_logistic_regression_is_free",
    ),
    Mutant(
        "long-triangle",
        "entries beside the diagonal of a matrix weigh as if sent twice with one noise",
        "studies/study.py",
        "np.where(first == second, 1.0, math.sqrt(2))\n    return found",
        "np.where(first == second, 1.0, 2.0)\n    return found",
        f"{STUDY}::test_a_triangle_has_the_length_of_its_matrix",
    ),
    Mutant(
        "asymmetric-noise",
        "the noise of a curvature is not symmetric, as its covariance says",
        "studies/study.py",
        "matrix[second, first] = matrix[first, second]",
        "matrix[second, first] = matrix[first, second][::-1]",
        f"{REGRESSED}::test_noise_of_a_matrix_is_symmetric",
    ),
    Mutant(
        "noise-of-a-full-matrix",
        "a covariance counts the noise of a curvature as if it were not symmetric",
        "studies/glm.py",
        "return deviation**2 * (step @ step * np.eye(len(step)) + np.outer(step, step))",
        "return deviation**2 * (step @ step * np.eye(len(step)))",
        f"{REGRESSED}::test_noise_of_a_matrix_is_symmetric",
    ),
]


def outcome(mutant, folder):
    """Run the killer against the mutant; the exit code and what it printed."""
    # What Python compiled comes along, since a file that has changed is compiled again; what numba
    # compiled may hold a piece of another file.
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.nb[ci]"))
    changed = folder / "src" / "dpadmm" / mutant.file
    changed.write_text(mutant.source(), encoding="utf-8")
    for left in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
        left.unlink()
    return run_killer(mutant, folder / "src")


def run_killer(mutant, source):
    """Run the killer of a mutant against the package in a folder."""
    if mutant.by_audit:
        main = "from dpadmm.cli import main; main()"
        command = [sys.executable, "-c", main, "audit", *mutant.killer, "--json"]
    else:
        # The configuration names the folder of the package as it is: the edited one must win.
        quiet = ("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-o", f"pythonpath={source}")
        command = [sys.executable, "-m", "pytest", *quiet, mutant.killer]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout + done.stderr


def table():
    """The page's table: every mutant and who kills it."""
    lines = ["| mutant | what it breaks | killed by |", "| --- | --- | --- |"]
    for mutant in MUTANTS:
        words = " ".join(mutant.killer) if mutant.by_audit else mutant.killer
        killer = f"`dpadmm audit {words}`" if mutant.by_audit else f"`{words}`"
        lines.append(f"| {mutant.name} | {mutant.breaks} | {killer} |")
    return "\n".join(lines) + "\n"
