"""The words of the section on how good a model is."""

QUALITY = "How good it is"
ANSWER = "{figures} ({level} interval), {about}."
FIGURE_WORDS = "{name} {figure}"
WORDS = (
    "Evaluated {about}. One histogram was released, of true class by score; every figure here "
    "follows from it. Intervals ({level}) cover both which rows happened to be evaluated on and "
    "the noise; each holds by itself, not all of them at once."
)
ON_HELD_OUT = (
    "on {rows} rows kept out of training, for {spent}-differential privacy in an account of "
    "their own: for a person the larger of what the training and evaluations spent counts"
)
ON_TRAINED = (
    "on the {rows} rows that were trained on, which is optimistic, for {spent}-differential "
    "privacy, which adds to what the training spent on them"
)
IF_SECRET = "what would be, were the noise secret, {spent}"
ON_PUBLIC = "exactly, on {rows} public rows, for nothing"
PERCENT = "{value}% [{low}, {high}]"
NOT_DETERMINED = "not determined"
FIGURES = "Figures, with {level} intervals"
FIGURES_NOTE = (
    "Not determined: the noise is too large for the rows that the figure is a share of. "
    "Probabilities (Brier score, calibration) are those fitted to this histogram."
)
FIGURE = "figure"
ESTIMATE = "estimate"
LOW = "from"
HIGH = "to"
OF_CLASS = "{figure} of {name}"
ROC = "ROC curve"
ROC_X = "false alarms, % of the first class"
ROC_Y = "found, % of the second class"
ROC_LINE = "this model"
CHANCE = "by chance"
ROC_CAPTION = (
    "What each threshold finds of the second class, against its false alarms; the band is the "
    "interval of what is found."
)
CALIBRATION = "Calibration"
CALIBRATION_X = "probability, %"
CALIBRATION_Y = "rows of the class, %"
CALIBRATED = "as it should be"
CALIBRATION_CAPTION = (
    "Of the rows whose probability is so large, so many are of the class; the band is the interval."
)
CONFUSION = "True class (rows) by predicted class (columns), % of all rows"
TRUE = "true"
THRESHOLD = "{name} is predicted where the score is above {threshold}."
