"""Five lines from a messy table to a model for every patient, and to what learning together gains.

python examples/five_lines.py
"""

from pathlib import Path

import pandas

import flockwise

FILE = Path(__file__).with_name("visits.csv")

visits = pandas.read_csv(FILE)
X, y = visits.drop(columns="eased"), visits["eased"]
model = flockwise.PersonalizedClassifier(agent="patient").fit(X, y)
print(model.predict_proba(X.head(3)))
print(model.gain_.describe())
