def figure_chart(figure): return {}
