"""Short names of the models, for the command line; nothing is imported, so `--help` is quick."""

ALIASES = {
    "probit": "ProbitVGPMIL",
    "vgpmil": "VGPMIL",
    "pg": "PGVGPMIL",
    "psi": "PsiVGPMIL",
    "gamma": "GammaVGPMIL",
    "large-margin": "LargeMarginVGPMIL",
    "ising": "IsingVGPMIL",
    "mirvm": "MIRVM",
    "rvm": "RVM",
    "mi-logistic": "MILogisticRegression",
}


def class_name(name: str) -> str:
    """The class that a short name or a class name stands for, in any case; else the name itself.

    >>> class_name("MiRVM"), class_name("probitvgpmil"), class_name("svm")
    ('MIRVM', 'ProbitVGPMIL', 'svm')
    """
    known = {kind.lower(): kind for kind in (*ALIASES.values(), "MultiTaskMIRVM")}
    return (known | ALIASES).get(name.lower(), name)
