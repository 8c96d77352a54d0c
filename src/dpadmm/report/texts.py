"""Words of reports that stand in several places; braces are filled in by name.

What a guarantee says (adjacency, adversary, theorem, what is not covered) is worded by
:mod:`dpadmm.privacy.statement` and shown as it is there.
"""

DATA_OF = "Data: {title}"

# Columns and keys.
LOW = "low"
HIGH = "high"
PARTY = "party"
ROWS = "rows"
DEGREE = "neighbours"
SERVER = "server"
NODE = "node"
ROUND = "round"
EPSILON = "epsilon spent"
BUDGET = "budget"
THEOREM = "theorem"
CALIBRATION = "calibration"
NONE = "none"
YES = "yes"
NO = "no"

# Banners.
SIMULATION = "SIMULATION."
PUBLISHED = "PUBLISHED CALIBRATION."
STAND_IN = "STAND-IN DATA."
WARNING = "Warning."

# A run, or several.
LEARNT = "What was learnt"
WHO_MORE = "and {count} more"
PROVEN_PAIR = "epsilon = {epsilon} at delta = {delta}"
PROVEN_NOTHING = "no finite epsilon"
GUESS_SEEN = "all messages"
GRAPH = "Who talked to whom"
DISAGREEMENT = "Agreement of the parties"
DISAGREEMENT_Y = "largest distance of a message from the mean"
CHANGE = "Movement of the mean"
CHANGE_Y = "distance since the round before"
WEIGHTS = "The classifier"
ACCURACY_VALUE = "accuracy, %"
CONFIGURATION = "Configuration, and how to run it again"
CONFIGURATION_CODE = "run.toml"
RUNS_NO_SUM = "No total is guaranteed to people who are in all of these runs: {reason}."

# Comparisons and experiments.
MEANING = "What the epsilons mean"
COMPARISON_TABLE = "All figures"
COMPARISON_PUBLISHED_WORDS = (
    "Lines marked (published) have noise as a paper sets it: the epsilon beneath them is the "
    "paper's claim, not a proven guarantee. The table has what is proven, where it is known."
)
COMMAND = "The command that makes it again"
NO_NOISE = "without noise"
VERDICTS = "What the paper concludes, and what came out"
SETTINGS = "Settings"
