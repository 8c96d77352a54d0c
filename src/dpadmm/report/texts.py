"""Every text of a report, in one place; braces are filled in by name.

What a guarantee says (adjacency, adversary, theorem, what is not covered) is worded by
:mod:`dpadmm.privacy.statement` and shown as it is there.
"""

# The page.
SKIP = "Skip to the report"
AT_A_GLANCE = "At a glance"
CONTENTS = "Contents"
SAVE_SVG = "Save the drawing (SVG)"
SAVE_CSV = "Save the data (CSV)"
DATA_OF = "Data: {title}"
FOOTER = (
    "This page is one file: it opens without a network, runs no script and asks nothing of any "
    "server."
)
LIVE_FOOTER = (
    "This page keeps itself up to date: its one script asks the command that serves it, and nobody "
    "else."
)
LOST = "NO ANSWER."
LOST_ADVICE = (
    "The command that serves this page has ended or cannot be reached: what is below is old."
)
NOT_RECORDED = "The record of this run does not say."

# Columns and keys.
SERIES = "series"
LOW = "low"
HIGH = "high"
PARTY = "party"
ROWS = "rows"
DEGREE = "neighbours"
NEIGHBOURS = "talks to"
SERVER = "server"
ROUND = "round"
EPSILON = "epsilon spent"
BUDGET = "budget"
DELTA = "delta"
GUESSES = "attacker right at most, %"
THEOREM = "theorem"
UNBOUNDED = "no bound"
PART_OF = "{part} of {whole}"
PARTY_HINT = "{name}: {rows:,} rows"

# What a screen reader is told of a drawing; the table beside it has all values.
LINE_DESCRIPTION = "{name}: {first} at {start}, {last} at {end}."
BAR_DESCRIPTION = "{value}, {count} bars, from {bottom} ({least}) to {top} ({most})."
NODE = "node"
HOW_IT_IS = "how it is"
WAITS_FOR = "waits for"
WAIT_DESCRIPTION = "{nodes} nodes, {links} links."
ONE_WAITS = "{name} waits for {other}."
NOBODY_WAITS = "Nobody waits for long."
GRAPH_DESCRIPTION = "{parties} parties, {links} links."
SERVER_DESCRIPTION = "{parties} parties around a server that holds no rows."
GUESS_DESCRIPTION = (
    "A hundred guesses between two rows that a person may have had. 50 are right by chance; with "
    "{seen} of the run at most {right} are right."
)

# A run.
RUN_TITLE = "{what}: what was learnt, what is guaranteed"
PREDICTING = "Predicting {label}"
RUN_OF = "A run of {algorithm}"
RUN_SUBTITLE = "{run}, ended {ended}, dpadmm {version}"
RUN_BY_HASH = "Run {run} of {algorithm}"
RUN_BY_COMMAND = "{algorithm} by the command: {command}"
TILE_EPSILON = "epsilon, the largest"
TILE_EPSILON_SIMULATED = "epsilon, if noise is secret"
TILE_DELTA = "delta"
TILE_RIGHT = "right guesses, at most"
TILE_PARTIES = "parties"
TILE_ROWS = "rows, none shared"
TILE_ROUNDS = "rounds"
OF_HUNDRED = "{right} of 100"
NONE = "none"

WHO = "Who took part"
WHO_WORDS = "{count} parties, {how}: {names}."
WHO_MORE = "and {count} more"
NAME_AND_ROWS = "{name} ({rows:,} rows)"
ON_GRAPHS = {
    "ring": "on a ring",
    "path": "on a path",
    "star": "on a star (the first is the hub)",
    "complete": "each with all others",
    "grid": "on a grid",
    "random": "on a random graph",
}
ON_EDGES = "on a graph of their own"
ON_SERVER = "around a server that holds no rows"
ON_UNKNOWN = "on a graph that was not recorded"

LEARNT = "What was learnt"
LEARNT_WORDS = (
    "A linear classifier ({loss} loss) that predicts {label} ({classes}) from {columns}, by "
    "{rounds} rounds of {algorithm}."
)
LEARNT_LABEL = "{label}"
LEARNT_CLASS = "the class"
LEARNT_COLUMNS = "{count} columns ({columns}), encoded as {features} features"
LEARNT_COLUMN = "the column {columns}, encoded as {features} features"
LEARNT_FEATURES = "{features} features"
LEARNT_FREQUENCIES = ", the cosines and sines of {frequencies} random frequencies"
VERSUS = " or "

GUARANTEED = "What is guaranteed"
GUARANTEED_WORDS = (
    "To the people of {whose}: ({epsilon}, {delta})-differential privacy, in total over the "
    "whole run. Had one person's rows been others, nothing that the other parties or anybody else "
    "sees of the run would have become more than {factor} times as likely, plus {delta}."
)
GUARANTEED_SHARED = (
    "To the people of {whose}, against those whom the line Against whom names: ({epsilon}, "
    "{delta})-differential privacy, in total over the whole run. Had one person's rows at one "
    "party been others, nothing that they see of the run would have become more than {factor} "
    "times as likely, plus {delta}. That rests on the noise of the honest parties: where more "
    "parties work together, nothing but the line If all others collude holds."
)
EACH_PARTY = "each party"
GUARANTEED_RANGE = " The parties' epsilons go from {least} ({best}) to {most} ({weakest})."
GUARANTEED_NOTHING = (
    "Nothing. No finite epsilon is proven for this run of {algorithm}: its messages may reveal "
    "rows."
)
GUARANTEED_SIMULATED = (
    "To nobody, since the noise can be drawn again. With secret noise it would be, to the people "
    "of {whose}: ({epsilon}, {delta})-differential privacy, in total over the whole run."
)
WHEN = "When a person's data change"
AGAINST = "Against whom"
BECAUSE = "By which theorem"
BECAUSE_WORDS = "{theorem}. Accountant: {accountant}. Calibration: {calibration}."
NOT_COVERED = "What is not covered"
REAL_OR_NOT = "Simulation or not"
SIMULATED_WORDS = "A simulation. The noise is {noise}."
REAL_WORDS = "Not a simulation. {noise}."
NO_LEDGER_COVERED = "other runs on the same rows (no ledger counts them)"

# Banners.
SIMULATION = "SIMULATION."
ENDED_EARLY = "ENDED EARLY."
ENDED_EARLY_WORDS = (
    "A node was lost, and this one ended with the model of round {done} of {rounds}. Rely on the "
    "agreed budget: what was spent so far was decided by who was lost, and when."
)
CAVEAT = "What to know before relying on it"
WENT_ON = "WENT ON WITHOUT A NODE."
WENT_ON_WORDS = (
    "The others went on without {names}, within their own budgets. What was sent to a lost node "
    "stays with it and stays spent."
)
SIMULATION_WORDS = (
    "The noise of this run can be drawn again: it protects nobody. Its figures are what the same "
    "run would guarantee with secret noise."
)
SIMULATION_NOTHING = "Its data and its messages are for trying things out."
NO_GUARANTEE = "NO PRIVACY GUARANTEE."
NO_GUARANTEE_WORDS = (
    "No finite epsilon is proven for this run of {algorithm}. Treat its messages as rows."
)
PUBLISHED = "PUBLISHED CALIBRATION."
PUBLISHED_WORDS = (
    "The noise is set as the paper prints it. The paper claims: {claim} That is not proven. What "
    "is proven for this run: {proven}."
)
PUBLISHED_NO_CLAIM = "no figure."
PROVEN_PAIR = "epsilon = {epsilon} at delta = {delta}"
PROVEN_NOTHING = "no finite epsilon"
OVER_BUDGET = "OVER BUDGET."
OVER_BUDGET_WORDS = "More was spent than was allowed: {parties}."
OVER_BUDGET_PARTY = "{name} spent epsilon = {spent} of {budget}"
LEDGER_OVER_PARTY = "the ledger of {name} has epsilon = {spent} of {budget}"
NOT_REVIEWED = "THEOREM NOT REVIEWED."
NOT_REVIEWED_WORDS = (
    "The algorithm {algorithm} comes from outside; its theorem is its author's word."
)
LEDGER_FAILED = "LEDGER CHECK FAILED."
LEDGER_FAILED_WORDS = "{name}: {reason}"
NOT_COUNTED = "Not counted."
NOT_COUNTED_WORDS = (
    "This run was charged to no ledger, so nothing adds up what other runs spent on the same rows."
)
WARNING = "Warning."

# The picture of an attacker's odds.
GUESS_TITLE = "What that means: guessing about one person"
GUESS_CAPTION = (
    "An attacker knows every other row and two candidates for this person's, a fair coin chose "
    "one, and every message of the run is seen. Of 100 such guesses {right} are right at most. "
    "Theorem: {theorem}."
)
GUESS_CAPTION_SHARED = (
    "An attacker of those whom the line Against whom names knows every other row and two "
    "candidates for this person's, a fair coin chose one, and the sum of all messages is seen in "
    "every round. Of 100 such guesses {right} are right at most. Theorem: {theorem}."
)
GUESS_CAPTION_SIMULATED = "If the noise were secret: "
GUESS_CAPTION_NOTHING = (
    "An attacker knows every other row and two candidates for this person's. Nothing bounds how "
    "many guesses are right."
)
GUESS_WHO = "the attacker"
GUESS_RIGHT = "right guesses"
GUESS_WITHOUT = "tosses a coin"
GUESS_WITH = "sees {seen}, at most"
GUESS_SEEN = "all messages"
GUESS_SEEN_SHARED = "the sums of messages"
GUESS_ALL = "sees the rows"
GUESS_CHANCE = "50 right by chance"
GUESS_GAINED = "{gained} more by {seen}, at most"
GUESS_WRONG = "{wrong} wrong all the same"
ATTACKER = "What an attacker could find out"
ATTACKER_WORDS = (
    "The bound holds for every test, whoever runs it and whatever else is known. It is about one "
    "person of the party with the weakest guarantee."
)
ATTACKER_WORDS_SHARED = (
    "The bound holds for every test of those whom the line Against whom names, whatever else they "
    "know but the noise of the honest parties. It is about one person of the party with the "
    "weakest guarantee, with rows at no other."
)
TESTS_TITLE = "Finding a person, against false alarms"
TESTS_X = "false alarms, % of the innocent cases"
TESTS_Y = "found, % of the true cases, at most"
TESTS_LINE = "bound of this run"
TESTS_CHANCE = "by chance"
TESTS_CAPTION = (
    "Whatever test is used: the share of true cases it finds, against the share of cases it "
    "raises a false alarm for. {theorem}."
)

# Parties.
PARTIES = "What each party spent"
PARTIES_WORDS = (
    "The guarantee of a party rests on its own noise alone. {weakest} Epsilons of different "
    "parties are never added: they are about different people."
)
PARTIES_WORDS_SHARED = (
    "The guarantees hold against {adversary}. {weakest} Each is about people with rows at that "
    "party alone: a person with rows at several costs the sum of their mu."
)
WEAKEST = "The weakest guarantee is that of {name}: epsilon = {epsilon}."
ALL_EQUAL = "All parties have the same guarantee."
PARTIES_TABLE = "Parties"
MORE_PARTIES = "The {shown} parties with the weakest guarantees; the record has all {all}."
THEOREM_OF_ALL = "Theorem: {theorem}."
ROUNDS_PLOT = "Budget spent over the rounds"
ROUNDS_CAPTION = "Epsilon after each round, at the delta of the party.{note}"
ROUNDS_SAME = "{name} and {count} more alike"
ROUNDS_MORE = " Of {all} different courses the {shown} highest are drawn."
ROUNDS_THINNED = " Every {step}th round is drawn; the record has all."
SPENT_PLOT = "Spent of the budget of this run"
SPENT_CAPTION = "What was spent, inside what the configuration allows this run."
LEDGERS_TABLE = "Ledgers: the budget of each data set over all its runs"
LEDGER_COLUMNS = (
    "party",
    "data set",
    "runs",
    "epsilon spent",
    "of policy",
    "policy's delta",
    "budget left",
    "check",
)
LEDGER_ALONE = "epsilon spent if all others collude"
LEDGER_GOOD = "consistent, {when}: every hash, message and cost worked out again"
LEDGER_BAD = "FAILED, {when}: {reason}"
LEDGER_AT_END = "at the end of the run"
LEDGER_NOW = "when this page was made"
LEDGER_NOTE = (
    "An older copy put in a ledger's place would pass the check: compare its head with one noted "
    "elsewhere. The heads are in the configuration section."
)
PERCENT = "{share} %"
NO_LEDGERS = "No ledger was charged."

# Graph and convergence.
GRAPH = "Who talked to whom"
GRAPH_TITLE = "The parties and their links"
GRAPH_CAPTION = "The area of a circle follows the party's rows.{weakest}"
GRAPH_WEAKEST = " The weakest guarantee is dashed."
GRAPH_TOO_LARGE = "{parties} parties with {links} links: too many to draw."
CONVERGENCE = "Agreement and convergence"
CONVERGENCE_WORDS = (
    "Both figures are functions of the messages alone: nothing here was computed from rows in any "
    "other way."
)
DISAGREEMENT = "Agreement of the parties"
DISAGREEMENT_Y = "largest distance of a message from the mean"
CHANGE = "Movement of the mean"
CHANGE_Y = "distance since the round before"

# The classifier.
WEIGHTS = "The classifier"
WEIGHTS_WORDS = (
    "The weights that were released. The noise of privacy is in them: a small weight may be noise"
    " alone, and no weight tells about one person."
)
WEIGHTS_FOURIER = (
    "The {features} weights that were released belong to random Fourier features: cosines and sines"
    " of all columns together. None of them says what a column does, so none is shown; the model"
    " file has them all."
)
WEIGHTS_ERROR = (
    " Noise alone gives every weight of an encoded feature a standard error of about {error} or"
    " less: a public figure, from runs with the same noise on rows of zeros. Whiskers reach two"
    " standard errors to each side; weights within two of zero are grey. Where classes are well"
    " separated rows pull weights back, and the error is smaller than stated."
)
WEIGHTS_NO_ERROR = " How far noise alone moves them is not known for this run."
WEIGHTS_TITLE = "Largest weights: towards {towards}"
WEIGHTS_VALUE = "weight of the encoded feature"
WEIGHTS_CAPTION = "The {shown} largest of {all}."
FEATURE = "feature"
UNITS_TABLE = "Weights in the units of the columns"
UNITS_COLUMNS = ("feature", "weight", "of")
UNITS_ERRORS = ("error of noise", "noise alone?")
UNITS_TOWARDS = "towards"
UNITS_NOTE = (
    "The score of a row is the sum of weight times value over its columns, and the intercept; it is"
    " above zero where the row is predicted to be of that class (of several, the class with the"
    " highest). Values outside the bounds of the schema count as the nearer bound."
)
OF_UNIT = "one unit"
OF_LEVEL = "being so"
INTERCEPT = "intercept"
YES = "yes"
NO = "no"

# Accuracy, where rows for it are public or a simulation.
ACCURACY = "What it brings, and what privacy costs"
ACCURACY_WORDS = (
    "Accuracy on rows that were held out. This is a simulation: a real run computes no such "
    "figure from private rows."
)
ACCURACY_TITLE = "Accuracy on held-out rows"
ACCURACY_VALUE = "accuracy, %"
ACCURACY_WHO = "who trains"
ACCURACY_COURSE = "Accuracy over the rounds"
BEST_ALONE = "best party alone"
POOLED = "pooled"
WHEN_NOT = "When it does not pay:"

# Configuration.
CONFIGURATION = "Configuration, and how to run it again"
TRAIN_COMMAND = "pip install dpadmm=={version}\ndpadmm train run.toml"
REPRODUCE = "Run it again"
REPRODUCE_SAME = "The noise is simulated, so that the same numbers come out."
REPRODUCE_OTHER = (
    "Noise is drawn anew, so that the numbers differ, and the budget of the rows is spent once "
    "more."
)
REPRODUCE_WHERE = (
    "Save this as run.toml beside the files that it names (they are recorded without folders)."
)
CONFIGURATION_CODE = "run.toml"
FACTS_OF_RUN = (
    ("run", "run_sha256"),
    ("schema", "schema_sha256"),
    ("model file", "model_sha256"),
    ("ended", "ended"),
    ("dpadmm", "dpadmm"),
    ("Python", "python"),
    ("NumPy", "numpy"),
)
SECONDS = "seconds"
LEDGER_HEAD = "head of the ledger of {name}"

# Several runs.
RUNS_TITLE = "{count} runs side by side"
RUNS_SUBTITLE = "Made by dpadmm {version}"
SHORT_GUARANTEE = "Guaranteed: {guarantee}."
RUNS_TABLE = "The runs"
RUNS_COLUMNS = (
    "run",
    "algorithm",
    "parties",
    "rounds",
    "epsilon",
    "delta",
    "attacker right at most, %",
    "calibration",
    "simulated",
    "remarks",
)
RUNS_TOGETHER = "Together"
RUNS_SUM = (
    "If these runs are about the same people, their guarantees add up: in total ({epsilon}, "
    "{delta})-differential privacy by basic composition. A ledger composes them more tightly."
)
RUNS_SUM_SHARED = (
    " That holds against those only against whom each of these runs holds: some share noise."
)
RUNS_NO_SUM = "No total is guaranteed to people who are in all of these runs: {reason}."
RUNS_REASON_ADJACENCY = "they differ in what is replaced"
RUNS_REASON_NOTHING = "{name} guarantees nothing"
RUNS_REASON_SIMULATED = "{name} is a simulation"
RUNS_BESIDE = "Side by side"
RUNS_SPENT = "Epsilon of the weakest party over the rounds"
YES = "yes"
NO = "no"

# A refusal.
REFUSED_TITLE = "Refused: a run over budget"
REFUSED_SUBTITLE = "{algorithm}, {rounds} rounds, refused {when}, dpadmm {version}"
REFUSED = "OVER BUDGET: REFUSED."
REFUSED_WORDS = "The run did not start. No row was read, no message was sent, nothing was charged."
STOPPED_WORDS = (
    "A ledger stopped the run, as another run used up the budget meanwhile. The round that did not "
    "fit was not sent; earlier rounds were, and stay charged."
)
STOPPED_LEARNT = "No model was written."
REFUSED_WHY = "Why"
REFUSED_ASKED = "What was asked for"
REFUSED_ASKED_WORDS = "epsilon = {epsilon} at delta = {delta}, {rounds} rounds of {algorithm}"
REFUSED_LEARNT = "Nothing."
REFUSED_NEXT = "What can be done"
REFUSED_NEXT_WORDS = (
    "Ask for a smaller epsilon, or let the owner of the data decide on another policy. dpadmm "
    "account tells what a run would cost."
)

# Comparisons and experiments.
COMPARISON_SUBTITLE = "A comparison, dpadmm {version}"
EXPERIMENT_SUBTITLE = "An experiment, dpadmm {version}"
OWN_FILES = "own files"
HEADLINE = "Does training together pay?"
COMPARED = "What was compared"
COMPARED_ON = "On which data"
RANKING_TITLE = "Who is ahead: {measure}"
RANKED = "who, graph, budget"
RANKING_CAPTION = (
    "The best first, {shown} of {all}; whiskers are intervals. Those of another colour have no"
    " noise and guarantee nothing."
)
INTERVALS = "What intervals say"
LOSSES = "Which loss was minimised"
COMPARISON_COLUMNS = (
    "who",
    "graph",
    "calibration",
    "epsilon: claimed (published) or budget",
    "proven epsilon",
    "theorem",
)
MEANING = "What the epsilons mean"
INTERVAL_SIDES = ("", ", low", ", high")
REFUSED_COLUMN = "refused because"
COMPARISON_TABLE = "All figures"
COMPARISON_CURVES = "Privacy-utility curves"
COMPARISON_PUBLISHED = "{name} (published)"
COMPARISON_PUBLISHED_WORDS = (
    "Lines marked (published) have noise as a paper sets it: the epsilon beneath them is the "
    "paper's claim, not a proven guarantee. The table has what is proven, where it is known."
)
COMPARISON_SIMULATED = (
    "The noise of these runs can be drawn again: they protect nobody. Epsilons are what the same "
    "runs would guarantee with secret noise."
)
COMMAND = "The command that makes it again"
FIGURES = "Figures"
CONFIGURATION_WORD = "Configuration"
NO_NOISE = "without noise"
AT_EPSILON = "epsilon = {epsilon}"
COMPARISON_TITLE = "Algorithms compared on {data}"
STAND_IN = "STAND-IN DATA."
PAPER = "The paper"
VERDICTS = "What the paper concludes, and what came out"
CONCLUSION = "conclusion"
CALIBRATION = "calibration"
VERDICT = "verdict"
NUMBER = "the number that shows it"
CRITERION = "criterion, fixed before running"
SETTINGS = "Settings"
SETTING = "setting"
VALUE = "value"
SOURCE = "source"
WHY = "why"
TABLES = "Tables"
